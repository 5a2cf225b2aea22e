"""The `codex` command line program."""

from ringfence.runtime.client.codex.client import CodexClient

__all__ = ["CodexClient"]
