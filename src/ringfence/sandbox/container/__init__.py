"""Hardening, limits, labels and end reasons of containers, independent of the engine that makes them."""
