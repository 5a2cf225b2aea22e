"""Who thinks: the contract of a model, Claude through the Messages API, and a scripted stand-in."""

SDK_MODULES = ("anthropic", "anthropic.resources.messages")
"""What a first request needs of the official SDK, which itself puts the second off until then."""
