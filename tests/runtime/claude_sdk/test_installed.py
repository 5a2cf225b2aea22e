"""Which SDK is taken, and what is said of one that is not."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.errors import ConfigurationError
from ringfence.runtime.claude_sdk.runtime import (
    INSTALL,
    NEWEST,
    OLDEST,
    check_sdk,
    check_shape,
    check_version,
)


def test_the_installed_sdk_is_one_that_was_tried(sdk: Any):
    """Its version, its transport, and what else is stood on."""
    check_sdk()


def test_without_the_sdk_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    """One line, with the command; as for any other program that is not installed."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ConfigurationError) as told:
        check_sdk()
    assert INSTALL in str(told.value)


@pytest.mark.parametrize("version", ["0.2.185", "0.3.0", "1.0", "unknown"])
def test_a_version_that_was_not_tried_is_refused(version: str):
    """It names the range, and how to try it all the same."""
    with pytest.raises(ConfigurationError) as told:
        check_version(version, force=False)
    assert all(word in str(told.value) for word in (version, OLDEST, NEWEST, "--force"))
    check_version(version, force=True)


@pytest.mark.slow
def test_another_transport_is_refused(sdk: Any):
    """Its class may change with any release; then nothing is tried on it."""
    methods = frozenset({"connect", "write", "poll"})
    changed = SimpleNamespace(
        **{
            name: getattr(sdk, name)
            for name in ("ClaudeAgentOptions", "ClaudeSDKClient", "McpSdkServerConfig")
        },
        Transport=SimpleNamespace(__abstractmethods__=methods),
    )
    with pytest.raises(ConfigurationError, match="another Transport: connect, poll, write"):
        check_shape(changed)
