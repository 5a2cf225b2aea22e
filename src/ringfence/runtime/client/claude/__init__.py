"""The `claude` command line program."""

from ringfence.runtime.client.claude.client import ClaudeClient

__all__ = ["ClaudeClient"]
