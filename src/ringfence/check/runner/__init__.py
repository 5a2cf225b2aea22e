"""Runs a check by its test runner: one module per runner, and `command` for those that are not known."""
