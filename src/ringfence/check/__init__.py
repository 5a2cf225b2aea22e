"""Judges finished work: which files decide a check, and what a test runner reports."""
