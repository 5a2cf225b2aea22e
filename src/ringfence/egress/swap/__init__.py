"""Credentials for single hosts: inside is a placeholder, outside the gate puts the secret in its place."""
