"""Sandboxes started ahead, each for one run, handed out only while they are exactly what the run would start."""
