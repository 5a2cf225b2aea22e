"""Test-first loops: stories in, a verified branch out."""
