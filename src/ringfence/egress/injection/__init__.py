"""Credential injection: a secret replaces a placeholder in requests to one host, by TLS interception of that host."""
