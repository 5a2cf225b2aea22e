"""Changes in a sandbox: compared, kept, restored, and applied only when a person says so."""

from pathlib import Path

import pytest
from tests.integrations.mcp.conftest import Caller, Connect, names_in, ringfence

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def _changed(client: Caller, command: str = "echo new > new.txt") -> dict[str, str]:
    """A closed sandbox in which a command changed something."""
    sandbox = (await client.ok("sandbox_open"))["sandbox"]
    await client.ok("command_run", sandbox=sandbox, command=command)
    return await client.ok("sandbox_close", sandbox=sandbox)


async def test_the_patch_comes_in_pages(connect: Connect):
    """The pages together are the patch, while the sandbox is open and after it was closed."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        await client.ok("command_run", sandbox=sandbox, command="echo häl >> hello.txt; seq 100 > new")
        whole = (await client.ok("changes_diff", sandbox=sandbox))["patch"]
        pages, cursor = "", 0
        while cursor is not None:
            page = await client.ok("changes_diff", sandbox=sandbox, cursor=cursor, limit_bytes=70)
            pages, cursor = pages + page["patch"], page["next_cursor"]
        await client.ok("sandbox_close", sandbox=sandbox)
        closed = await client.ok("changes_diff", sandbox=sandbox)
    assert pages == whole == closed["patch"]
    assert "+häl\n" in whole
    assert [(file["path"], file["kind"]) for file in closed["files"]] == [
        ("hello.txt", "modified"),
        ("new", "added"),
    ]


async def test_what_no_patch_holds_is_named(connect: Connect):
    """A file that is too large to be kept is named, in the comparison as for a snapshot."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        command = "head -c 110000000 /dev/urandom > large"
        await client.ok("command_run", sandbox=sandbox, command=command)
        compared = await client.ok("changes_diff", sandbox=sandbox)
        kept = await client.ok("snapshot_create", sandbox=sandbox)
    assert compared["files"] == []
    assert "'large' added: 110000000 bytes" in compared["not_in_patch"][0]
    assert kept["not_in_snapshot"] == ["large"]


async def test_a_snapshot_is_restored_whole(connect: Connect):
    """Contents, executable files, links and places of files and directories are as they were; `before` leads back."""
    look = "find . -path ./.git -prune -o -type f -printf '%P %m ' -exec cat {} + -o -type l -printf '%P > %l\\n' | sort"
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]

        async def run(command: str) -> str:
            return str((await client.ok("command_run", sandbox=sandbox, command=command))["stdout"])

        await run("mkdir d; echo 1 > d/x; ln -s d/x link; echo run > tool; chmod +x tool")
        first = await run(look)
        kept = (await client.ok("snapshot_create", sandbox=sandbox))["snapshot"]
        await run("rm -r d link tool; mkdir link; echo 2 > link/y; echo 3 > d; ln -s nowhere hello.txt -f")
        second = await run(look)
        restored = await client.ok("snapshot_restore", sandbox=sandbox, snapshot=kept)
        assert await run(look) == first != second
        await client.ok("snapshot_restore", sandbox=sandbox, snapshot=restored["before"])
        assert await run(look) == second
        await client.ok("snapshot_restore", sandbox=sandbox, snapshot="start")
        assert await run("ls") == "hello.txt\n"


async def test_no_snapshot_is_taken_or_restored_while_something_writes(connect: Connect):
    """A process of the client, and one that a command left behind, are refused by name."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        kept = (await client.ok("snapshot_create", sandbox=sandbox))["snapshot"]
        process = (await client.ok("process_start", sandbox=sandbox, argv=["cat"]))["process"]
        for tool, more in (
            ("snapshot_create", {}),
            ("snapshot_restore", {"snapshot": kept}),
            ("changes_diff", {}),
        ):
            assert f"process {process!r} runs" in await client.refused(tool, sandbox=sandbox, **more)
        await client.ok("process_stop", sandbox=sandbox, process=process)
        left = "setsid sh -c 'while :; do echo x >> count; done' > /dev/null 2>&1 &"
        await client.ok("command_run", sandbox=sandbox, command=left)
        for _ in range(
            30
        ):  # a writer that does not get to run in between is not noticed, and changes nothing
            answer = await client.client.call_tool("snapshot_create", {"sandbox": sandbox})
            if answer.is_error:
                break
        assert "a process that a command left behind" in str(answer.content)


async def test_a_person_applies_the_changes(connect: Connect, workspace: Path):
    """A client's request waits in the inbox, without a fleet; `allow` applies the changes, and it is gone."""
    async with connect() as client:
        closed = await _changed(client)
        asked = await client.ok("changes_apply", sandbox=closed["sandbox"])
    short = closed["run"][-8:]
    assert asked["state"] == "requested"
    assert f"`ringfence apply {short}` applies them" in asked["message"]
    assert names_in(workspace) == ["hello.txt"]
    _, listed = await ringfence("inbox", "ls")
    assert f"asks to apply the changes of run {short} to {workspace}" in listed
    code, text = await ringfence("inbox", "answer", short, "allow")
    assert (code, text) == (0, f"{short}: applied 1 changed files to {workspace}\n")
    assert names_in(workspace) == ["hello.txt", "new.txt"]
    code, listed = await ringfence("inbox", "ls")
    assert (code, listed) == (0, "ringfence: nothing waits for a person\n")
    code, text = await ringfence("inbox", "show", short)
    assert (code, f"the changes of run '{short}' were applied" in text) == (2, True)
    assert (await ringfence("runs", "verify", closed["run"]))[0] == 0


async def test_a_person_sees_which_changes_run_on_this_machine(connect: Connect, workspace: Path):
    """`inbox show` lists the changed files, and names those that this machine runs by itself, as `allow` does."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        command = "mkdir .vscode && echo '{}' > .vscode/tasks.json && echo 2 > hello.txt"
        await client.ok("command_run", sandbox=sandbox, command=command)
        closed = await client.ok("sandbox_close", sandbox=sandbox)
        await client.ok("changes_apply", sandbox=sandbox)
    _, shown = await ringfence("inbox", "show", closed["run"])
    assert "modified   hello.txt" in shown
    code, text = await ringfence("inbox", "answer", closed["run"], "allow")
    for printed in (shown, text):
        assert "RUNS ON YOUR MACHINE, or is protected; look before you use it: .vscode/tasks.json" in printed
    assert code == 0


async def test_a_person_rejects_the_changes(connect: Connect, workspace: Path):
    """After `deny` nothing waits, nothing was changed, and the client cannot ask again."""
    async with connect() as client:
        closed = await _changed(client)
        await client.ok("changes_apply", sandbox=closed["sandbox"])
        code, text = await ringfence("inbox", "answer", closed["run"], "deny")
        assert (code, text) == (0, f"{closed['run'][-8:]}: rejected\n")
        code, text = await ringfence("inbox", "answer", closed["run"], "allow")
        assert (code, "were rejected; `ringfence apply" in text) == (2, True)
        assert "their state is 'rejected'" in await client.refused("changes_apply", sandbox=closed["sandbox"])
    assert names_in(workspace) == ["hello.txt"]


async def test_a_server_may_let_clients_apply(connect: Connect, workspace: Path):
    """With --allow-apply ordinary files are applied at once, but not those that run on this machine by themselves."""
    async with connect("--allow-apply") as client:
        plain = await _changed(client)
        assert (await client.ok("changes_apply", sandbox=plain["sandbox"]))["state"] == "applied"
        active = await _changed(client, "mkdir -p .vscode; echo '{}' > .vscode/tasks.json")
        asked = await client.ok("changes_apply", sandbox=active["sandbox"])
    assert asked["state"] == "requested"
    assert "run on this machine by themselves" in asked["message"]
    assert names_in(workspace) == ["hello.txt", "new.txt"]


async def test_an_open_sandbox_is_not_applied(connect: Connect, workspace: Path):
    """Its changes are not complete; the error says what to do."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        await client.ok("command_run", sandbox=sandbox, command="echo new > new.txt")
        assert "close it with sandbox_close" in await client.refused("changes_apply", sandbox=sandbox)
    assert names_in(workspace) == ["hello.txt"]


async def test_a_read_only_sandbox_changes_nothing(connect: Connect, workspace: Path):
    """Where a sandbox works on the workspace itself, a client can ask for less."""
    async with connect("--mode", "bind") as client:
        sandbox = (await client.ok("sandbox_open", read_only=True))["sandbox"]
        done = await client.ok("command_run", sandbox=sandbox, command="echo new > new.txt")
        assert done["exit_code"] != 0
        assert "has no private copy" in await client.refused("snapshot_create", sandbox=sandbox)
