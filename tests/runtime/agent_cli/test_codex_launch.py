"""How codex is started, as far as it shows without it; what that means to the real one is in `tests/real_clients`."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import CliPaths, Launch
from ringfence.runtime.base import Session, Task
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.options import Options
from ringfence.tool.base import McpServer, UnknownTool

PLACE = CliPaths(program="/p/codex", home="/h", workspace="/w", base_url="http://127.0.0.1:1")
ON_HOST = CliPaths(
    program="/p/codex", home="/h", workspace="/w", base_url="http://127.0.0.1:1", is_fence=False
)
BYPASS = "--dangerously-bypass-approvals-and-sandbox"


def launched(paths: CliPaths = PLACE, session: Session | None = None, **options: Any) -> Launch:
    """A start on a task with these options."""
    task = Task("do it", model="gpt-5.5", options=Options(**options), session=session)
    return CodexCli().launch(task, paths)


def test_the_prompt_is_on_no_command_line() -> None:
    """It comes by stdin, where it may be long and no process list shows it."""
    launch = launched()
    assert (launch.stdin, launch.argv[-1]) == (b"do it", "-")


def test_without_a_fence_its_own_sandbox_stays_on() -> None:
    """Nothing is bypassed."""
    assert BYPASS in launched().argv
    assert BYPASS not in launched(ON_HOST).argv
    assert BYPASS not in CodexCli().interactive(ON_HOST, [], Options()).argv


@given(st.text(), st.text(min_size=1), st.text())
def test_any_text_can_stand_in_the_configuration(text: str, word: str, value: str) -> None:
    """Quotes, control characters and what is outside of the basic plane mean themselves; lone halves are replaced."""
    server = McpServer(name="tiny", command=("x", word), env={"A": value}, cwd=word)
    launch = launched(system_append=text, mcp_servers=(server,))
    read = tomllib.loads(launch.files["/h/.codex/config.toml"].decode())
    assert read["developer_instructions"] == _sound(text)
    assert read["mcp_servers"]["tiny"]["args"] == [_sound(word)]
    assert read["mcp_servers"]["tiny"]["env"] == {"A": _sound(value)}
    assert read["model_provider"] == "gate"


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    "args",
    [
        ["--json"],
        ["-C", "/"],
        ["--cd=/"],
        ["-s", "read-only"],
        ["--trust"],
        ["--oss"],
        ["--worktree"],
        ["-i", "--", "--trust"],
    ],
    ids=" ".join,
)
def test_arguments_that_are_not_the_users_to_give_are_refused(args: list[str]) -> None:
    """They would take from ringfence what it reads, keeps or holds off."""
    with pytest.raises(UsageError, match=r"is refused: .*; leave it out"):
        launched(cli_args=tuple(args))


@pytest.mark.parametrize(
    ("session", "words"),
    [
        (Session("n"), ()),
        (Session("n", resumed_id="o"), ("resume", "o")),
        (Session("n", resumed_id="o", is_forked=True), ("fork", "o")),
    ],
    ids=["new", "resumed", "forked"],
)
def test_a_session_is_resumed_or_forked(session: Session, words: tuple[str, ...]) -> None:
    """By the id of the earlier one; new ids it makes itself."""
    argv = launched(session=session, cli_args=("--enable", "x")).argv
    assert tuple(word for word in argv if word in ("resume", "fork", "o", "n")) == words
    assert argv[-4 if words else -3 :][:2] == ("--enable", "x")


@pytest.mark.parametrize(
    "args", [["login"], ["cloud"], ["--remote=x"], ["--worktree"], ["-s", "read-only"]], ids=" ".join
)
def test_a_person_is_told_what_does_not_work_inside(args: list[str]) -> None:
    """Before anything is started, with the reason."""
    with pytest.raises(UsageError, match=r"refused|does not work inside"):
        CodexCli().interactive(PLACE, args, Options())


def test_a_persons_prompt_passes_through() -> None:
    """After ringfence's own arguments."""
    argv = CodexCli().interactive(PLACE, ["mend it"], Options()).argv
    assert argv[-1] == "mend it"
    assert BYPASS in argv


def test_a_task_that_it_would_not_take_is_refused() -> None:
    """It takes 1048576 characters, and says so only when it runs."""
    CodexCli().launch(Task("x" * 1024**2, model="m"), PLACE)
    with pytest.raises(UsageError, match="1048577 characters"):
        CodexCli().launch(Task("x" * (1024**2 + 1), model="m"), PLACE)


@pytest.mark.parametrize(
    ("denied", "is_bypassed", "words"),
    [
        (("shell",), True, ("--disable", "shell_tool", "-")),
        (("shell", "apply_patch"), False, ("--disable", "shell_tool", "-c", 'sandbox_mode="read-only"', "-")),
    ],
    ids=["shell", "both"],
)
def test_a_denied_tool_is_switched_off_after_all_other_arguments(
    denied: tuple[str, ...], is_bypassed: bool, words: tuple[str, ...]
) -> None:
    """A person's own arguments come before; what permits everything is not there where writing is denied."""
    argv = launched(tools_denied=denied, cli_args=("--enable", "shell_tool")).argv
    assert (argv[-len(words) :], BYPASS in argv) == (words, is_bypassed)


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        (("Bash",), "codex can be denied 'apply_patch' and 'shell', not 'Bash'; leave it out"),
        (("apply_patch",), "deny 'shell' as well"),
    ],
    ids=["unknown", "alone"],
)
def test_a_tool_that_cannot_be_denied_is_refused(denied: tuple[str, ...], told: str) -> None:
    """Codex itself would start with it; the names that have an effect are in the message."""
    with pytest.raises(UnknownTool, match=told):
        launched(tools_denied=denied)


def test_a_denial_is_not_bypassed() -> None:
    """By an argument of the user's own."""
    with pytest.raises(UsageError, match=r"would permit what tools\.deny denies; leave it out"):
        launched(tools_denied=("shell",), cli_args=(BYPASS,))
