"""Runs checks: one module per test runner, `base` for shared functions, `registry` to choose the runner."""
