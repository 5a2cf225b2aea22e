"""What clients cannot have: other directories, more of anything than allowed, weaker settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from tests.integrations.mcp.conftest import Connect, names_in

from ringfence.cli.settings import load_settings
from ringfence.config import Effective
from ringfence.errors import RingfenceError
from ringfence.integrations.mcp.arguments import OpenArguments
from ringfence.integrations.mcp.registry import SandboxRegistry, ServerOptions

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_workspaces_are_in_allowed_directories(connect: Connect, workspace: Path):
    """Neither a path nor a link leads out of the allowed directories, and no error tells what is outside of them."""
    (workspace / "inner").mkdir()
    (workspace / "out").symlink_to(workspace.parent)
    (workspace / "in").symlink_to("inner")
    async with connect() as client:
        for outside in ("..", str(workspace.parent), "/root", "/nowhere", "out", "out/other", "hello.txt"):
            error = await client.refused("sandbox_open", workspace=outside)
            assert error == (
                f"workspace {outside!r} is not a directory in {str(workspace)!r}; "
                "`ringfence mcp --allow-dir DIR` allows another one"
            )
        opened = await client.ok("sandbox_open", workspace="in")
        assert opened["workspace"] == str(workspace / "inner")
        assert len((await client.ok("sandbox_list"))["sandboxes"]) == 1


async def test_a_workspace_that_a_run_could_replace_is_refused(connect: Connect, workspace: Path):
    """From a sandbox that works on the workspace itself, a directory in it could be exchanged for a link."""
    (workspace / "inner").mkdir()
    async with connect("--mode", "bind") as client:
        await client.ok("sandbox_open")
        for is_read_only in (False, True):
            error = await client.refused("sandbox_open", workspace="inner", read_only=is_read_only)
            assert "lies in" in error


@pytest.mark.parametrize("mode", ["clone", "read_only"])
async def test_the_directory_that_was_checked_is_opened(workspace: Path, mode: Literal["clone", "read_only"]):
    """One that is replaced by a link afterwards is not, and neither is what the link leads to."""
    inner, outside = workspace / "inner", workspace.parent / "outside"
    inner.mkdir()
    outside.mkdir()

    def load(place: Path) -> Effective:
        inner.rmdir()
        inner.symlink_to(outside)
        return load_settings(place, mode=mode)

    async with anyio.create_task_group() as tasks:
        registry = SandboxRegistry(ServerOptions(workspace, [workspace], load), tasks)
        with pytest.raises(RingfenceError, match="was replaced while a sandbox was being opened"):
            await registry.open("me", "client", OpenArguments(workspace="inner"))
        assert registry.of("me") == []


async def test_read_only_shows_no_more_than_the_private_copy(connect: Connect, workspace: Path):
    """A private copy leaves out what git ignores; an argument of the client does not bring it back."""
    for words in (["git", "init", "-q"], ["git", "config", "core.excludesFile", "/dev/null"]):
        await anyio.run_process(words, cwd=workspace)
    (workspace / ".gitignore").write_text(".env\n")
    (workspace / ".env").write_text("PASSWORD=x\n")
    async with connect() as client:
        assert "private copy" in await client.refused("sandbox_open", read_only=True)
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        assert "'.env'" in await client.refused("file_read", sandbox=sandbox, path=".env")


async def test_a_session_has_a_limit_on_sandboxes_and_processes(connect: Connect):
    """Beyond the limits nothing is started; room that is given back can be used again."""
    async with connect("--max-sandboxes", "1", "--max-processes", "1") as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        assert "1 sandboxes are open" in await client.refused("sandbox_open")
        process = (await client.ok("process_start", sandbox=sandbox, argv=["cat"]))["process"]
        assert "1 processes run" in await client.refused("process_start", sandbox=sandbox, argv=["cat"])
        await client.ok("process_stop", sandbox=sandbox, process=process)
        await client.ok("process_start", sandbox=sandbox, argv=["cat"])
        await client.ok("sandbox_close", sandbox=sandbox)
        await client.ok("sandbox_open")


async def test_a_client_can_only_shorten_the_time_limit(connect: Connect):
    """At the server's limit the sandbox ends, whatever the client asked for, and the call under way is told so."""
    async with connect("--timeout", "3s") as client:
        sandbox = (await client.ok("sandbox_open", timeout_s=3000.0))["sandbox"]
        error = await client.refused("command_run", sandbox=sandbox, command="sleep 60")
        assert "ended during the call" in error
        await client.ok("sandbox_close", sandbox=sandbox)
        (listed,) = (await client.ok("sandbox_list"))["sandboxes"]
    assert "the time limit of 3s was reached" in listed["reason"]


async def test_a_sandbox_whose_record_is_full_ends(connect: Connect):
    """A client cannot fill the disk with records: the sandbox ends by its limit, and what it changed is kept."""
    async with connect("--max-record", "1m") as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        await client.ok("file_write", sandbox=sandbox, path="new.txt", text="x" * 600_000)
        assert "its record is full" in await client.refused(
            "file_write", sandbox=sandbox, path="new.txt", text="y" * 600_000
        )
        closed = await client.ok("sandbox_close", sandbox=sandbox)
        assert "limit 'record' reached" in closed["reason"]
        assert closed["files_changed"] == 1


async def test_an_idle_sandbox_is_closed(connect: Connect):
    """Without calls a sandbox ends by itself; a running process is no call."""
    async with connect("--idle", "1s") as client:
        sandbox = (await client.ok("sandbox_open", idle_s=3000.0))["sandbox"]
        await client.ok("command_run", sandbox=sandbox, command="sleep 2")
        await client.ok("process_start", sandbox=sandbox, command="sleep 60")
        while (listed := (await client.ok("sandbox_list"))["sandboxes"][0])["state"] != "ended":
            pass
        assert listed["reason"] == "no call used it for 1s; nothing checked it"
        assert "has ended" in await client.refused("command_run", sandbox=sandbox, command="true")


async def test_long_output_is_cut_in_the_middle(connect: Connect):
    """The beginning and the end are returned, with the number of bytes that there were."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        command = "echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo last"
        done = await client.ok("command_run", sandbox=sandbox, command=command, limit_bytes=1000)
    assert (done["stdout_bytes"], done["is_cut"]) == (1_000_011, True)
    assert done["stdout"].startswith("first\n")
    assert done["stdout"].endswith("last\n")
    assert len(done["stdout"]) < 1100


HOSTILE: list[tuple[str, str, dict[str, Any], str]] = [
    ("no command", "command_run", {}, "arguments: give either command or argv"),
    (
        "two commands",
        "command_run",
        {"command": "true", "argv": ["true"]},
        "arguments: give either command or argv",
    ),
    (
        "unknown argument",
        "command_run",
        {"command": "true", "root": True},
        "root: the tool has no such argument; it has: sandbox, command, argv",
    ),
    ("another type", "command_run", {"command": ["true"]}, "command: Input should be a valid string"),
    ("long command", "command_run", {"command": "x" * 70_000}, "command: String should have at most 65536"),
    ("many arguments", "command_run", {"argv": ["x"] * 1001}, "argv: List should have at most 1000 items"),
    ("NUL", "command_run", {"argv": ["a\0b"]}, "argv.0: it has a NUL character"),
    (
        "no time",
        "command_run",
        {"command": "true", "timeout_s": 0},
        "timeout_s: Input should be greater than 0",
    ),
    ("not base64", "file_write", {"path": "new", "base64": "=x="}, "arguments: base64 is not valid"),
    ("large file", "file_write", {"path": "new", "text": "é" * (3 * 1024**2)}, "more than 4194304 bytes"),
    (
        "negative cursor",
        "process_poll",
        {"process": "p", "cursor": -1},
        "cursor: Input should be greater than or",
    ),
    ("huge cursor", "file_read", {"path": "hello.txt", "cursor": 2**60}, "cursor: Input should be less than"),
    ("no process", "process_write", {"process": "p", "text": "x"}, "has no process 'p'"),
    ("unknown snapshot", "snapshot_restore", {"snapshot": "../x"}, "has no snapshot '../x'"),
    ("no directory", "command_run", {"command": "true", "cwd": "nowhere"}, "'nowhere' cannot be entered"),
    ("no file", "file_read", {"path": "nowhere"}, "could not read 'nowhere' inside the sandbox"),
]


async def test_bad_arguments_are_one_clear_error_and_do_nothing(connect: Connect, workspace: Path):
    """Each error is one sentence that names the argument; afterwards the sandbox is as before."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        for name, tool, arguments, expected in HOSTILE:
            assert expected in await client.refused(tool, sandbox=sandbox, **arguments), name
        listed = await client.ok("file_list", sandbox=sandbox)
        assert [entry["name"] for entry in listed["entries"]] == ["hello.txt"]
        assert (await client.ok("changes_diff", sandbox=sandbox))["files"] == []
    assert names_in(workspace) == ["hello.txt"]


async def test_input_that_nobody_reads_is_bounded(connect: Connect):
    """Input waits up to a limit; what is beyond it is refused whole."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        process = (await client.ok("process_start", sandbox=sandbox, command="sleep 60"))["process"]
        text = "x" * (2 * 1024**2)
        write: Callable[[], Any] = lambda: client.client.call_tool(  # noqa: E731
            "process_write", {"sandbox": sandbox, "process": process, "text": text}
        )
        results = [await write() for _ in range(4)]
        assert [result.is_error for result in results] == [False, False, True, True]
        ended = await client.ok("process_stop", sandbox=sandbox, process=process, signal="KILL")
    assert ended["state"] == "ended"
