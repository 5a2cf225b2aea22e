"""A client of the official library works in sandboxes, in every revision of the protocol that it speaks."""

from pathlib import Path

import pytest
from tests.integrations.mcp.conftest import Connect, names_in

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_command_changes_only_the_copy(connect: Connect, workspace: Path, mode: str, revision: str):
    """What a command in a sandbox writes is in its private copy, and in the workspace only when a person applies it."""
    async with connect(mode=mode) as client:
        assert client.client.protocol_version == revision
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        done = await client.ok(
            "command_run", sandbox=sandbox, command="cat hello.txt; echo new > new.txt; exit 3"
        )
        assert (done["exit_code"], done["stdout"]) == (3, "hello\n")
        assert (await client.ok("file_read", sandbox=sandbox, path="new.txt"))["text"] == "new\n"
        closed = await client.ok("sandbox_close", sandbox=sandbox)
    assert closed["files_changed"] == 1
    assert names_in(workspace) == ["hello.txt"]


async def test_files_come_back_as_they_were_written(connect: Connect):
    """Text is read as text, and anything else as base64."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        await client.ok("file_write", sandbox=sandbox, path="a/text", text="häl\n")
        await client.ok("file_write", sandbox=sandbox, path="a/bytes", base64="gIE=")
        text = await client.ok("file_read", sandbox=sandbox, path="a/text")
        data = await client.ok("file_read", sandbox=sandbox, path="a/bytes")
        listed = await client.ok("file_list", sandbox=sandbox, path="a")
    assert (text["encoding"], text["text"]) == ("utf-8", "häl\n")
    assert (data["encoding"], data["base64"]) == ("base64", "gIE=")
    assert [(entry["name"], entry["size"]) for entry in listed["entries"]] == [("bytes", 2), ("text", 5)]


async def test_a_process_is_written_to_and_polled(connect: Connect):
    """A process goes on between calls; its output is read from a cursor on, and its end is reported."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        process = (await client.ok("process_start", sandbox=sandbox, argv=["cat"]))["process"]
        await client.ok("process_write", sandbox=sandbox, process=process, text="one\n")
        first = await client.ok("process_poll", sandbox=sandbox, process=process, wait_s=30)
        await client.ok("process_write", sandbox=sandbox, process=process, text="two\n", end=True)
        output, cursor = "", first["next_cursor"]
        while True:
            page = await client.ok("process_poll", sandbox=sandbox, process=process, cursor=cursor, wait_s=30)
            output, cursor = output + page["output"], page["next_cursor"]
            if page["state"] != "running":
                break
    assert (first["output"], output) == ("one\n", "two\n")
    assert (page["exit_code"], page["ended_by"]) == (0, "exit")


async def test_a_process_that_ignores_the_signal_is_killed(connect: Connect):
    """Stopping a process ends it with everything it started."""
    async with connect() as client:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        command = "trap '' TERM; echo ready; while :; do sleep 1; done"
        process = (await client.ok("process_start", sandbox=sandbox, command=command))["process"]
        await client.ok("process_poll", sandbox=sandbox, process=process, wait_s=30)
        ended = await client.ok("process_stop", sandbox=sandbox, process=process, wait_s=0.2)
    assert (ended["state"], ended["exit_code"]) == ("ended", 137)
