"""The Claude Agent SDK on the host: whether it is there, and is one that this release was tried with."""

import re
from typing import Any

from ringfence.errors import ConfigurationError

OLDEST, NEWEST = "0.2.186", "0.2.187"
"""Tried by the tests. Its class `Transport` may change with any release, as its makers say. The extra brings the oldest,
since with each the SDK brings another `claude`, whose versions have a range of their own."""

INSTALL = "pip install 'ringfence[claude-sdk]'"
_TRANSPORT = frozenset({"connect", "write", "read_messages", "close", "is_ready", "end_input"})
_NEEDED = ("ClaudeAgentOptions", "ClaudeSDKClient", "McpSdkServerConfig")


def check_sdk(*, force: bool = False) -> None:
    """See that the SDK can be used. Imports it, which takes most of a second.

    Args:
        force: Take a version that was not tried.

    Raises:
        ConfigurationError: It is not installed, its version was not tried, or its transport is not the one we are
            made for.
    """
    try:
        import claude_agent_sdk
    except ImportError as missing:
        raise ConfigurationError(
            f"the runtime 'claude-sdk' needs the package claude-agent-sdk; install it with: {INSTALL}"
        ) from missing
    check_version(str(getattr(claude_agent_sdk, "__version__", "unknown")), force=force)
    check_shape(claude_agent_sdk)


def check_version(version: str, *, force: bool) -> None:
    """See that `version` was tried.

    Raises:
        ConfigurationError: It was not, and `force` does not say to take it.
    """
    if force or _numbers(OLDEST) <= _numbers(version) <= _numbers(NEWEST):
        return
    raise ConfigurationError(
        f"claude-agent-sdk {version} was not tried with this release, which knows {OLDEST} to {NEWEST}; "
        f"install it with: {INSTALL}, or try it with --force"
    )


def check_shape(sdk: Any) -> None:
    """See that the SDK has what we stand on; `--force` does not help where it has not.

    Raises:
        ConfigurationError: It has not.
    """
    absent = [name for name in _NEEDED if not hasattr(sdk, name)]
    methods: frozenset[str] = getattr(getattr(sdk, "Transport", None), "__abstractmethods__", frozenset())
    if not absent and methods == _TRANSPORT:
        return
    what = (
        f"has no {absent[0]}" if absent else f"has another Transport: {', '.join(sorted(methods)) or 'none'}"
    )
    raise ConfigurationError(f"claude-agent-sdk {what}; install one that this release knows: {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
