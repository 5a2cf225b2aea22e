"""The end of a session: whatever ends it, its sandboxes end, and their records are sealed or closed."""

import signal
from pathlib import Path

import anyio
import pytest
from tests.integrations.mcp.conftest import Connect, RawClient, ringfence
from tests.leftovers import processes_below

from ringfence.events import Event, ToolCalled, ToolReturned
from ringfence.journal import read, run_dirs

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def _events(path: Path) -> list[Event]:
    return [record.event for record in read(path)]


async def _verify(run: str) -> str:
    code, text = await ringfence("runs", "verify", run)
    assert code == 0, text
    return text


async def test_each_call_is_in_a_record_that_verifies(connect: Connect):
    """The record names the client, and holds each call before its result; `runs show` and `runs logs` read it."""
    async with connect() as client:
        sandbox = await client.ok("sandbox_open")
        await client.ok("command_run", sandbox=sandbox["sandbox"], command="echo hello; cat nowhere")
        await client.refused("file_read", sandbox=sandbox["sandbox"], path="nowhere")
        process = await client.ok("process_start", sandbox=sandbox["sandbox"], command="echo started; cat")
        await client.ok("process_poll", sandbox=sandbox["sandbox"], process=process["process"], wait_s=30)
        run = (await client.ok("sandbox_close", sandbox=sandbox["sandbox"]))["run"]
    assert "sealed" in await _verify(run)
    (path,) = run_dirs()
    events = [event for event in _events(path) if isinstance(event, ToolCalled | ToolReturned)]
    told = [(event.name, event.tool) for event in events]
    tools = ["command_run", "file_read", "process_start", "process_poll"]
    assert told == [(name, tool) for tool in tools for name in ("tool.called", "tool.returned")]
    assert [event.is_error for event in events if isinstance(event, ToolReturned)] == [
        False,
        True,
        False,
        False,
    ]
    _, shown = await ringfence("runs", "show", run)
    assert "sandbox of the MCP client mcp " in shown
    _, log = await ringfence("runs", "logs", run)
    assert "started" in log


async def test_the_end_of_input_ends_the_session(raw: RawClient, workspace: Path, tmp_path: Path):
    """A client that just closes the connection leaves sealed records and no process."""
    raw.begin("2025-11-25")
    opened = raw.call("sandbox_open")
    raw.call("process_start", sandbox=opened["sandbox"], command="sleep 600")
    assert raw.end() == 0
    assert "sealed" in await _verify(opened["run"])
    assert list(processes_below(tmp_path)) == []


async def test_a_client_that_no_longer_reads_ends_the_session(raw: RawClient):
    """A result that cannot be delivered is the end, not an error of the server."""
    raw.begin("2025-11-25")
    opened = raw.call("sandbox_open")
    assert raw.process.stdout is not None
    raw.process.stdout.close()
    raw.send(b'{"jsonrpc":"2.0","id":9,"method":"tools/list"}')
    assert await anyio.to_thread.run_sync(raw.process.wait, 60) == 0
    assert "sealed" in await _verify(opened["run"])


async def test_stdin_that_no_client_is_at_is_a_mistake(workspace: Path):
    """A file is no client; the error says how a server is started."""
    code, text = await ringfence("mcp", "-C", str(workspace))
    assert code == 2
    assert text.startswith("ringfence: stdin is a file; an MCP client starts `ringfence mcp` with a pipe")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_session(raw: RawClient, number: signal.Signals):
    """The call under way is recorded as ended, and the record is sealed."""
    raw.begin("2025-11-25")
    opened = raw.call("sandbox_open")
    line = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"command_run","arguments":'
    raw.send(line + b'{"sandbox":"%s","command":"touch begun; sleep 600"}}}' % opened["sandbox"].encode())
    while not any(e["name"] == "begun" for e in raw_entries(raw, opened["sandbox"])):
        pass
    raw.process.send_signal(number)
    assert await anyio.to_thread.run_sync(raw.process.wait, 60) == 0
    assert "sealed" in await _verify(opened["run"])
    events = _events(run_dirs()[0])
    called = {event.call_id for event in events if isinstance(event, ToolCalled)}
    assert called == {event.call_id for event in events if isinstance(event, ToolReturned)}


def raw_entries(raw: RawClient, sandbox: str) -> list[dict[str, str]]:
    """The files in a sandbox."""
    return list(raw.call("file_list", sandbox=sandbox)["entries"])


async def test_a_killed_server_leaves_nothing(raw: RawClient, tmp_path: Path):
    """Everything inside dies with the server; the next command closes its record and keeps its changes."""
    raw.begin("2025-11-25")
    opened = raw.call("sandbox_open")
    raw.call("command_run", sandbox=opened["sandbox"], command="echo kept > kept.txt")
    raw.call("process_start", sandbox=opened["sandbox"], command="sleep 600")
    raw.process.kill()
    raw.process.wait()
    code, _ = await ringfence("exec", "-C", str(tmp_path / "work"), "--", "true")
    assert code == 0
    _, shown = await ringfence("runs", "show", opened["run"])
    assert "interrupted" in shown
    _, diff = await ringfence("diff", opened["run"])
    assert "+kept" in diff
    assert list(processes_below(tmp_path)) == []


async def test_closing_ends_the_call_under_way(connect: Connect):
    """A command that runs while its sandbox is closed is an error, and the sandbox is closed all the same."""
    async with connect() as client, anyio.create_task_group() as tasks:
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
        errors: list[str] = []

        async def run() -> None:
            errors.append(
                await client.refused("command_run", sandbox=sandbox, command="touch begun; sleep 600")
            )

        tasks.start_soon(run)
        while not any(
            entry["name"] == "begun" for entry in (await client.ok("file_list", sandbox=sandbox))["entries"]
        ):
            pass
        assert (await client.ok("sandbox_close", sandbox=sandbox))["files_changed"] == 1
    assert errors == [f"sandbox {sandbox!r} ended during the call: its client closed it"]
