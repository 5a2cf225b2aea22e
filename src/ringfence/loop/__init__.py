"""Runs loops: works through stories test-first, and delivers the verified result as a branch."""
