"""Runs a check by its test runner: one module per runner, `base` for what they share, `registry` to choose one."""
