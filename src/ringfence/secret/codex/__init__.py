"""A ChatGPT login as Codex keeps it: its file, and renewing it so that it never breaks.

Its refresh token can be used once. Two that use the same one, or one that uses it and does not keep the answer, end
the login for everybody. So all processes of this machine renew it one at a time, under a lock, in a process of its own
that a killed run does not take along; who finds it renewed by somebody else takes that.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.secret.codex.login import CodexLogin

__all__ = ["CodexLogin"]


def __getattr__(name: str) -> Any:
    # The process that renews a login needs only this package's file: it starts three times as fast so.
    if name == "CodexLogin":
        from ringfence.secret.codex.login import CodexLogin

        return CodexLogin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
