"""Which runtime honours which option: one table, and what it says is so."""

from pathlib import Path
from typing import Any, get_args

import pytest

from ringfence.cli.options import SETTINGS
from ringfence.config.fields import all_fields
from ringfence.errors import UsageError
from ringfence.job.agent import requested_features
from ringfence.job.request import AgentRequest
from ringfence.runtime import Limits
from ringfence.runtime.options import (
    SUPPORT,
    Options,
    RuntimeName,
    check_options,
    given_options,
)
from ringfence.runtime.registry import runtime_names
from ringfence.tool.base import McpServer
from ringfence.tool.function import tool

CELLS = [(option, runtime) for option in SUPPORT for runtime in get_args(RuntimeName)]
GIVEN: dict[str, Any] = {
    "system_prompt": "Be brief.",
    "system_append": "Be brief.",
    "tools_allowed": ("Read",),
    "tools_denied": ("Bash",),
    "tools_permitted": ("Bash",),
    "permission_mode": "plan",
    "mcp_servers": (McpServer(name="one", command=("one",)),),
    "plugins": (Path("/plugin"),),
    "settings_sources": ("project",),
    "output_schema": {"type": "object"},
    "cli_path": Path("/bin/claude"),
    "cli_args": ("--verbose",),
    "idle_timeout_s": 60.0,
    "force": True,
}
"""A value of each option that is not its default."""


@pytest.mark.parametrize(("option", "runtime"), CELLS, ids="-".join)
def test_a_runtime_honours_an_option_or_refuses_it(option: str, runtime: str) -> None:
    """An option without an effect would be believed to have one; the refusal names who can."""
    if runtime in SUPPORT[option].runtimes:
        check_options(runtime, [option])
        return
    with pytest.raises(UsageError) as caught:
        check_options(runtime, [option])
    told = str(caught.value)
    assert f"the runtime {runtime!r} has no {option}" in told
    assert all(able in told for able in SUPPORT[option].runtimes)


def test_every_option_is_in_the_table() -> None:
    """A new one is not forgotten."""
    assert set(Options.model_fields) <= set(SUPPORT)
    assert set(GIVEN) == set(Options.model_fields)
    assert set(get_args(RuntimeName)) == set(runtime_names())


def test_every_setting_of_an_option_is_one() -> None:
    """What a refusal names can be looked up."""
    assert {support.setting for support in SUPPORT.values() if support.setting} <= set(all_fields())


def test_a_refusal_names_what_was_typed() -> None:
    """Beside the key: it may be in a file."""
    with pytest.raises(UsageError, match=r"has no tools_allowed \(--allow-tool, tools\.allow\)"):
        check_options("codex-cli", ["tools_allowed"])


def test_every_flag_of_an_option_is_one() -> None:
    """That of its setting; none is left out."""
    flags = {option.key: f"--{name.replace('_', '-')}" for name, option in SETTINGS.items()}
    known = {
        option: flags[support.setting] for option, support in SUPPORT.items() if support.setting in flags
    }
    assert known == {option: support.flag for option, support in SUPPORT.items() if support.flag}


@pytest.mark.parametrize("option", GIVEN)
def test_what_is_given_is_known(option: str) -> None:
    """Only what somebody asked for is checked."""
    assert given_options(Options()) == []
    assert given_options(Options(**{option: GIVEN[option]})) == [option]


@tool
async def look(where: str) -> str:
    """Look."""
    return where


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"toolset": "coder"}, "toolset"),
        ({"functions": [look]}, "python_tools"),
        ({"mcp_servers": GIVEN["mcp_servers"]}, "mcp_servers"),
        ({"options": Options(cli_args=("-x",))}, "cli_args"),
    ],
    ids=["toolset", "functions", "servers", "option"],
)
def test_what_an_agent_is_asked_is_checked_too(given: dict[str, Any], option: str) -> None:
    """A toolset that was named counts, be it the usual one."""
    request = AgentRequest(prompt="x", model="m", limits=Limits(), **given)
    assert requested_features(request) == [option]
