"""How claude is started, as far as it shows without it; what that means to the real one is in `tests/real_clients`."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import CliPaths, Launch
from ringfence.runtime.base import Session, Task
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.claude_sdk.runtime import ClaudeSdkCli
from ringfence.runtime.options import Options
from ringfence.tool.base import McpServer

PLACE = CliPaths(
    program="/p/claude",
    home="/h",
    workspace="/w",
    base_url="http://127.0.0.1:1",
    socket="/run/model.sock",
)
ON_HOST = CliPaths(
    program="/p/claude", home="/h", workspace="/w", base_url="http://127.0.0.1:1", is_fence=False
)


def launched(paths: CliPaths = PLACE, session: Session | None = None, **options: Any) -> Launch:
    """A start on a task with these options."""
    task = Task("do it", model="opus", options=Options(**options), session=session)
    return ClaudeCli().launch(task, paths)


def test_the_prompt_is_on_no_command_line() -> None:
    """It comes by stdin, where it may be long and no process list shows it."""
    launch = launched()
    assert launch.stdin == b"do it"
    assert not [word for word in launch.argv if "do it" in word]


def test_without_a_fence_its_own_checks_stay_on() -> None:
    """Nothing is skipped, and it is not told that it is in a sandbox."""
    launch = launched(ON_HOST)
    assert "--dangerously-skip-permissions" not in launch.argv
    assert "IS_SANDBOX" not in launch.env
    asked = ClaudeCli().interactive(ON_HOST, [], Options())
    assert "--dangerously-skip-permissions" not in asked.argv
    assert json.loads(asked.files["/h/.claude/.claude.json"])["projects"] == {}


def test_no_key_is_given() -> None:
    """The dummy comes from the gate, and no launch has a variable for a credential."""
    names = set(launched().env) | set(ClaudeCli().interactive(PLACE, [], Options()).env)
    assert not names & {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}


def test_long_texts_come_by_files() -> None:
    """A system prompt may be longer than an argument."""
    launch = launched(system_prompt="s" * 300_000, system_append="a" * 300_000)
    assert sorted(map(len, launch.files.values())) == [300_000, 300_000]
    assert sum(map(len, launch.argv)) < 1000


def test_a_task_that_it_would_not_read_is_refused() -> None:
    """Before it is started, in bytes; the SDK sends tasks another way."""
    most = 10 * 1024**2
    task = Task("é" * (most // 2), "m")
    assert len(ClaudeCli().launch(task, PLACE).stdin) == most
    longer = Task(f"{task.prompt}.", "m")
    with pytest.raises(UsageError, match=f"{most + 1} bytes, and claude takes at most {most}"):
        ClaudeCli().launch(longer, PLACE)
    ClaudeSdkCli().launch(longer, PLACE)


def test_a_schema_that_no_argument_holds_is_refused() -> None:
    """Claude takes it by no other way; the kernel's error would say less."""
    with pytest.raises(UsageError, match="the output schema takes 200"):
        launched(output_schema={"title": "x" * 200_000})


@pytest.mark.parametrize(
    "args",
    [
        ["--output-format=json"],
        ["--resume", "x"],
        ["-c"],
        ["-pc"],
        ["--setting-sources", ""],
        ["--bg"],
        ["-rx"],
    ],
    ids=" ".join,
)
def test_arguments_that_are_not_the_users_to_give_are_refused(args: list[str]) -> None:
    """They would take from ringfence what it reads, keeps or holds off; the error names what to use."""
    with pytest.raises(UsageError, match=r"is refused: .*; leave it out"):
        launched(cli_args=tuple(args))


def test_other_arguments_pass_through() -> None:
    """After ringfence's own, in their order."""
    assert launched(cli_args=("--effort", "low")).argv[-2:] == ("--effort", "low")


def test_the_end_of_options_may_be_a_value_and_end_nothing() -> None:
    """The program takes `--` for the value of a flag that wants one, and reads on."""
    with pytest.raises(UsageError, match=r"'--resume' of claude is refused"):
        launched(cli_args=("--append-system-prompt", "--", "--resume=x"))
    assert launched(cli_args=("--effort", "low", "--", "--resume")).argv[-1] == "--resume"


SERVER = McpServer(name="one", command=("one",))


@pytest.mark.parametrize("way", ["tools_allowed", "tools_denied", "tools_permitted"])
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("Bsh", "no tool 'Bsh'.*did you mean 'Bash'"),
        ("bash", "did you mean 'Bash'"),
        ("Nosuch(rm *)", "no tool 'Nosuch'"),
        ("Read,Rad", "no tool 'Rad'"),
        ("mcp__two__look", "'mcp__two__look' .*, which has one"),
        ("mcp__onetwo", "of this task, which has one"),
    ],
)
def test_a_tool_that_is_not_there_is_refused(way: str, named: str, told: str) -> None:
    """Claude passes over it in silence: nothing would be denied, or all would."""
    options: dict[str, Any] = {way: ("Read", named)}
    with pytest.raises(UsageError, match=told):
        launched(mcp_servers=(SERVER,), **options)


@pytest.mark.parametrize("way", ["tools_allowed", "tools_denied", "tools_permitted"])
@pytest.mark.parametrize(
    "named",
    [
        ("Bash(git log, x)",),
        ("Bash(echo (x)),Read",),
        ("Task",),
        ("REPL",),
        ("mcp__one",),
        ("mcp__one__look",),
        ("mcp__one__*",),
    ],
    ids=str,
)
def test_a_tool_that_may_be_there_is_taken(way: str, named: tuple[str, ...]) -> None:
    """By any of its names, with a pattern, or of a server."""
    options: dict[str, Any] = {way: named}
    assert launched(mcp_servers=(SERVER,), **options)


def test_all_tools_of_one_text_are_left() -> None:
    """A pattern ends with its bracket."""
    assert "--tools=Bash,Read" in launched(tools_allowed=("Bash(git log, x),Read",)).argv


def test_a_permitted_tool_is_added_to_those_that_are_there() -> None:
    """Without allowed tools, all of claude's own are there, and one more needs no permission."""
    argv = launched(tools_permitted=("Bash",), permission_mode="accept_edits").argv
    assert "--allowedTools=Bash" in argv
    assert not any(word.startswith("--tools=") for word in argv)
    assert "--tools=Read,Bash" in launched(tools_allowed=("Read",), tools_permitted=("Bash",)).argv


def test_a_wildcard_denies_and_does_not_allow() -> None:
    """Claude takes it so."""
    assert "--disallowedTools=Cron*" in launched(tools_denied=("Cron*",)).argv
    with pytest.raises(UsageError, match="would allow no tool"):
        launched(tools_allowed=("Cron*",))


def test_names_that_only_others_know_are_taken() -> None:
    """A newer client has other tools, and servers come by plugins, arguments and the SDK."""
    assert launched(tools_denied=("Nosuch",), force=True)
    assert launched(tools_denied=("mcp__two__look",), cli_args=("--mcp-config=/x.json",))
    task = Task("do it", model="opus", options=Options(tools_denied=("mcp__two__look",)))
    assert ClaudeSdkCli().launch(task, PLACE)


def test_a_pattern_of_tools_with_everything_permitted_is_refused() -> None:
    """It would count for nothing, and look as if it did."""
    with pytest.raises(UsageError, match=r"Bash\(ls:\*\)"):
        launched(tools_allowed=("Bash(ls:*)",), permission_mode="bypass")


@pytest.mark.parametrize(
    ("session", "words"),
    [
        (Session("n"), {"--session-id=n"}),
        (Session("n", resumed_id="o"), {"--resume=o"}),
        (Session("n", resumed_id="o", is_forked=True), {"--resume=o", "--fork-session", "--session-id=n"}),
    ],
    ids=["new", "resumed", "forked"],
)
def test_a_session_is_begun_resumed_or_forked(session: Session, words: set[str]) -> None:
    """By the ids that the host chose."""
    said = {word for word in launched(session=session).argv if "session" in word or "resume" in word}
    assert said == words


@pytest.mark.parametrize(
    "args", [["--cloud"], ["--bg"], ["--remote-control=x"], ["setup-token"], ["update"]], ids=" ".join
)
def test_a_person_is_told_what_does_not_work_inside(args: list[str]) -> None:
    """Before anything is started, with the reason."""
    with pytest.raises(UsageError, match=r"refused|does not work inside"):
        ClaudeCli().interactive(PLACE, args, Options())


def test_a_persons_prompt_is_no_directory() -> None:
    """No argument of ringfence's takes the words after it as its own."""
    argv = ClaudeCli().interactive(PLACE, ["mend it"], Options()).argv
    assert all("=" in word or word == "--dangerously-skip-permissions" for word in argv[1:-1])
    assert argv[-1] == "mend it"


def test_a_person_decides_about_permissions_and_settings() -> None:
    """What is given is not given again by ringfence."""
    argv = (
        ClaudeCli()
        .interactive(PLACE, ["--permission-mode", "plan", "--setting-sources=project"], Options())
        .argv
    )
    assert argv == ("/p/claude", "--permission-mode", "plan", "--setting-sources=project")


def test_a_command_of_the_program_gets_no_options() -> None:
    """`claude mcp list` would not take them."""
    assert ClaudeCli().interactive(PLACE, ["mcp", "list"], Options()).argv == ("/p/claude", "mcp", "list")


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ((), ["--setting-sources=user", "--add-dir=."]),
        (("project",), ["--setting-sources=user,project"]),
        (("user",), ["--setting-sources=user", "--add-dir=."]),
    ],
    ids=["none", "project", "user"],
)
def test_settings_that_were_granted_count_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Any, words: list[str]
) -> None:
    """The person's own files come along as copies where the person's settings count."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "CLAUDE.md").write_text("be brief")
    launch = ClaudeCli().interactive(PLACE, [], Options(settings_sources=sources))
    assert list(launch.argv[1:-1]) == words
    assert ("/h/.claude/CLAUDE.md" in launch.files) is ("user" in sources)
