"""The real `claude`, configured by `ringfence init --claude-code`, works wholly in the sandbox."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.testing.scripted_model import Script, in_prompt

from .conftest import Desk, Ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PRINT = ("-p", "--output-format", "stream-json", "--verbose")
TRUSTED = (*PRINT, "--allowedTools=mcp__ringfence")
SKIPS = (*PRINT, "--dangerously-skip-permissions")
HANDLE = {"sandbox": "sandbox-[0-9a-f]{32}"}
SECRET = "zqsecret-of-the-host"


def call(name: str, taken: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    """A turn in which the model calls one tool."""
    return {"tools": [{"name": name, "input": given, "from_results": taken or {}}]}


def inside(name: str, **given: Any) -> dict[str, Any]:
    """A turn that calls a tool of the server in the open sandbox."""
    return call(f"mcp__ringfence__{name}", HANDLE, **given)


def prompt_of(*turns: dict[str, Any]) -> str:
    """A prompt that brings the turns, and an end."""
    return "Do it. " + in_prompt(Script.model_validate({"turns": [*turns, {"text": "Done."}]}))


def results(ended: Ended) -> list[tuple[bool, str]]:
    """Each tool result that the model got: whether it is an error, and its text."""
    assert ended.code == 0, (ended.out, ended.err)
    last = ended.requests[-1].body["messages"]
    found = [
        block
        for message in last
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return [(bool(block.get("is_error")), json.dumps(block["content"])) for block in found]


def offered(ended: Ended) -> set[str]:
    """The tools in all requests to the model; a placeholder of claude's that does nothing is left out."""
    names = {tool["name"] for asked in ended.requests if asked.body for tool in asked.body.get("tools", ())}
    return names - {"DeferredToolPlaceholder"}


def is_servers(names: set[str]) -> bool:
    """Whether all tools are those of the server, and there are some."""
    return bool(names) and all(name.startswith("mcp__ringfence__") for name in names)


OWN_TOOLS = [
    call("Bash", command="echo pwned > pwned; cat secret.txt"),
    call("Read", file_path="{project}/secret.txt"),
    call("Write", file_path="{project}/pwned", content="x"),
    call("Edit", file_path="{project}/note.txt", old_string="one", new_string="pwned"),
    call("NotebookEdit", notebook_path="{project}/n.ipynb", new_source="x"),
    call("Glob", pattern="**/*"),
    call("Grep", pattern="zq", path="{project}"),
    call("WebFetch", url="{api}", prompt="x"),
    call("WebSearch", query="x"),
    call("Agent", description="d", prompt="p", subagent_type="general-purpose"),
    call("Task", description="d", prompt="p", subagent_type="general-purpose"),
    call("Monitor", command="touch pwned", description="d"),
    call("Workflow", script="x"),
    call("Skill", skill="x"),
    call("ToolSearch", query="select:Bash"),
    call("EnterWorktree"),
    call("CronCreate", cron="* * * * *", prompt="x"),
    call("KillShell", shell_id="1"),
]


def tree(project: Path) -> dict[str, bytes]:
    """The files of a project."""
    return {
        str(path.relative_to(project)): path.read_bytes() for path in project.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("arguments", [TRUSTED, SKIPS], ids=["allowed", "permissions skipped"])
async def test_its_own_tools_are_refused(desk: Desk, arguments: tuple[str, ...]):
    """None is offered to the model, a call of one changes nothing, and no file of the host comes out."""
    (desk.project / "secret.txt").write_text(SECRET)
    await desk.ringfence("init", "--claude-code")
    before = tree(desk.project)
    text = json.dumps(OWN_TOOLS).replace("{project}", str(desk.project))
    turns = json.loads(text.replace("{api}", desk.environment["ANTHROPIC_BASE_URL"]))
    ended = await desk.start("claude", *arguments, prompt=prompt_of(*turns), IS_SANDBOX="1")
    assert is_servers(offered(ended))
    got = results(ended)
    assert len(got) == len(OWN_TOOLS)
    assert [text for is_error, text in got if not (is_error and "No such tool available" in text)] == []
    assert SECRET not in json.dumps([asked.body for asked in ended.requests])
    assert tree(desk.project) == before


async def test_it_works_in_the_sandbox(desk: Desk):
    """It opens one, writes, runs, compares and closes; the host's files stay, and the record holds and shows it all."""
    await desk.ringfence("init", "--claude-code")
    before = tree(desk.project)
    ended = await desk.start(
        "claude",
        *TRUSTED,
        prompt=prompt_of(
            call("Bash", command="echo pwned > pwned"),
            call("mcp__ringfence__sandbox_open"),
            inside("file_write", path="made.txt", text="made inside\n"),
            inside("command_run", command="cat note.txt made.txt; echo two >> note.txt"),
            inside("changes_diff"),
            inside("sandbox_close"),
        ),
    )
    (bash_failed, _), *got = results(ended)
    assert bash_failed
    assert [text for is_error, text in got if is_error] == []
    assert "made inside" in got[2][1]
    assert "+two" in got[3][1]
    assert tree(desk.project) == before
    ((status, text),) = desk.records()
    assert status == "sealed"
    assert "cat note.txt made.txt" in text
    assert "echo pwned" not in text
    diff = await desk.ringfence("diff")
    assert "+made inside" in diff
    await desk.ringfence("apply")
    assert (desk.project / "made.txt").read_text() == "made inside\n"


async def test_the_sandbox_cannot_open_the_way_back(desk: Desk):
    """Settings that would give claude its tools back can be written inside, but do not come to the host."""
    await desk.ringfence("init", "--claude-code")
    before = tree(desk.project)
    loose = '{"permissions":{"allow":["Bash"]},"disableAllHooks":true}'
    ended = await desk.start(
        "claude",
        *TRUSTED,
        prompt=prompt_of(
            call("mcp__ringfence__sandbox_open"),
            inside(
                "command_run",
                command=f"echo '{loose}' > .claude/settings.local.json; rm .mcp.json; ls -A .claude",
            ),
            inside("command_run", command="rm -rf .claude/settings.json; mv .claude other"),
            inside("sandbox_close"),
            call("Bash", command="echo pwned > pwned"),
        ),
    )
    assert results(ended)[-1][0]
    assert tree(desk.project) == before


LOOSE: dict[str, Any] = {
    "permissions": {
        "allow": ["Bash", "Bash(*)", "Read", "Write"],
        "deny": [],
        "defaultMode": "bypassPermissions",
    },
    "disableAllHooks": True,
    "enableAllProjectMcpServers": True,
}


async def test_permissions_of_other_settings_do_not_bring_them_back(desk: Desk):
    """A denial wins over what the user, the project's local file and the command line allow."""
    await desk.ringfence("init", "--claude-code")
    (desk.home / ".claude").mkdir()
    for place in (desk.home / ".claude" / "settings.json", desk.project / ".claude" / "settings.local.json"):
        given = json.loads(place.read_text()) if place.exists() else {}
        rules = {**given.get("permissions", {}), **LOOSE["permissions"]}
        place.write_text(json.dumps({**given, **LOOSE, "permissions": rules}))
    before = tree(desk.project)
    ended = await desk.start(
        "claude",
        *SKIPS,
        "--tools=Bash,Read,Write",
        "--allowedTools=Bash,Read,Write",
        prompt=prompt_of(*OWN_TOOLS[:3]),
        IS_SANDBOX="1",
    )
    assert is_servers(offered(ended))
    assert [is_error for is_error, _ in results(ended)] == [True] * 3
    assert tree(desk.project) == before


async def test_a_mistake_in_the_shared_settings_does_not_bring_them_back(desk: Desk):
    """Claude ignores a file with an invalid value as a whole; the other file denies the tools all the same."""
    (desk.project / ".claude").mkdir()
    (desk.project / ".claude" / "settings.json").write_text('{"model": []}')
    await desk.ringfence("init", "--claude-code")
    before = tree(desk.project)
    ended = await desk.start("claude", *SKIPS, prompt=prompt_of(*OWN_TOOLS[:3]), IS_SANDBOX="1")
    assert is_servers(offered(ended))
    assert [is_error for is_error, _ in results(ended)] == [True] * 3
    assert tree(desk.project) == before


async def test_other_servers_do_not_work_beside_it(desk: Desk):
    """They are not started; where another file allows them, the hook still refuses their tools."""
    other = Path(__file__).parents[2] / "tool" / "mcp_example.py"
    python = desk.environment["PATH"].partition(":")[0] + "/python"
    server = {"command": python, "args": [str(other)]}
    (desk.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": server}}))
    (desk.home / ".claude.json").write_text(json.dumps({"mcpServers": {"third": server}}))
    await desk.ringfence("init", "--claude-code")
    turns = [call("mcp__tiny__echo", text="hi"), call("mcp__third__echo", text="hi")]
    ended = await desk.start("claude", *SKIPS, prompt=prompt_of(*turns), IS_SANDBOX="1")
    assert is_servers(offered(ended))
    allowed = {"allowedMcpServers": [{"serverName": "tiny"}, {"serverName": "third"}]}
    local = desk.project / ".claude" / "settings.local.json"
    local.write_text(json.dumps({**json.loads(local.read_text()), **allowed}))
    ended = await desk.start("claude", *SKIPS, prompt=prompt_of(*turns), IS_SANDBOX="1")
    assert "mcp__tiny__echo" in offered(ended)
    for is_error, text in results(ended):
        assert is_error
        assert "denies this tool" in text


async def test_removed_it_is_as_before(desk: Desk):
    """After `--remove` claude has its own tools again, and no server."""
    await desk.ringfence("init", "--claude-code")
    await desk.ringfence("init", "--claude-code", "--remove")
    ended = await desk.start("claude", *TRUSTED, prompt=prompt_of())
    assert "Bash" in offered(ended)
    assert not any(name.startswith("mcp__") for name in offered(ended))
