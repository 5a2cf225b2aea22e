"""Models: the contract, Claude through the Messages API, and a scripted stand-in."""

SDK_MODULES = ("anthropic", "anthropic.resources.messages")
"""Modules that a first request needs; the official SDK itself imports the second one lazily."""
