"""Modules that run inside a sandbox and report each test. They import the standard library and the test runner only."""
