"""What each tool of the server does, with the description that a client's model reads."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any

from ringfence.frozen import frozen
from ringfence.integrations.mcp import arguments as given
from ringfence.integrations.mcp import changes
from ringfence.integrations.mcp.registry import SandboxRegistry
from ringfence.integrations.mcp.sandbox import ClientSandbox
from ringfence.integrations.mcp.text import decode, encode_page
from ringfence.journal import run_dir
from ringfence.sandbox.workspace.record import has_record

_MAX_ENTRIES = 100_000


@frozen
class Caller:
    """The session and the client that call a tool."""

    owner: str
    """The session, which owns the sandboxes that it opens."""
    client: str
    """The name and version that the client reports; anybody can report any."""


@frozen
class ToolEntry:
    """A tool of the server: its description, its arguments, and the function that carries out a call."""

    description: str
    arguments: type[given.ToolArguments]
    act: Callable[..., Awaitable[dict[str, Any]]]
    """Called with the registry, the caller and the arguments, or with the open sandbox and the arguments."""
    is_inside: bool = True
    """Whether the tool acts in an open sandbox, whose record then holds the call."""
    is_read_only: bool = False


async def call_tool(
    entry: ToolEntry, name: str, registry: SandboxRegistry, caller: Caller, arguments: dict[str, Any] | None
) -> dict[str, Any]:
    """Check the arguments of a call and carry it out.

    Raises:
        RingfenceError: It is refused or fails; nothing is half done.
    """
    parsed = given.parse(entry.arguments, arguments)
    if not entry.is_inside:
        return await entry.act(registry, caller, parsed)
    assert isinstance(parsed, given.SandboxArguments)
    return await _call_inside(registry.find(parsed.sandbox, caller.owner), name, parsed, entry.act)


async def _call_inside(
    held: ClientSandbox,
    name: str,
    parsed: given.SandboxArguments,
    act: Callable[..., Awaitable[dict[str, Any]]],
) -> dict[str, Any]:
    """Call a tool in an open sandbox, with a record of the call."""
    recorded = parsed.model_dump(mode="json", exclude={"sandbox"}, exclude_defaults=True)
    return await held.call(name, recorded, lambda: act(held, parsed))


# --- sandboxes


def describe(held: ClientSandbox) -> dict[str, Any]:
    """Return the state of a sandbox for its client."""
    shown: dict[str, Any] = {
        "sandbox": held.handle,
        "state": "open" if held.is_open else "closing" if not held.over.is_set() else "ended",
        "workspace": str(held.workspace),
        "run": held.job.id if held.job is not None else None,
    }
    if held.is_open:
        sandbox = held.sandbox
        shown |= {
            "mode": sandbox.mode,
            "backend": sandbox.facts.backend,
            "directory_inside": sandbox.workspace,
            "processes": {key: process.state()["state"] for key, process in held.processes.items()},
        }
    else:
        shown["reason"] = held.end_reason
    return shown


async def _open(registry: SandboxRegistry, caller: Caller, arguments: given.OpenArguments) -> dict[str, Any]:
    held = await registry.open(caller.owner, caller.client, arguments)
    notes = held.sandbox.notes
    return {**describe(held), **({"notes": list(notes)} if notes else {})}


async def _list(registry: SandboxRegistry, caller: Caller, _arguments: given.ListArguments) -> dict[str, Any]:
    return {"sandboxes": [describe(held) for held in registry.of(caller.owner)]}


async def _close(
    registry: SandboxRegistry, caller: Caller, arguments: given.SandboxArguments
) -> dict[str, Any]:
    held = registry.find(arguments.sandbox, caller.owner)
    held.close("its client closed it")
    await held.over.wait()
    work = held.result.work if held.result is not None else None
    closed = describe(held)
    if work is not None:
        closed |= {"files_changed": work.files_changed, "notes": list(work.notes)}
        if work.refs:
            closed["commits"] = list(work.refs)
    if held.job is not None and has_record(run_dir(held.job.id)):
        short = held.job.id[-8:]
        closed["next"] = (
            f"`ringfence diff {short}` shows the changes, and `ringfence runs show {short}` the record"
        )
    return closed


# --- commands and processes


async def _run(held: ClientSandbox, arguments: given.RunArguments) -> dict[str, Any]:
    async with held.writing() as sandbox:
        result = await sandbox.run(
            arguments.words,
            cwd=arguments.cwd,
            stdin=arguments.stdin.encode(),
            timeout_s=arguments.timeout_s,
            output_limit_bytes=arguments.limit_bytes,
        )
    stdout, stderr = decode(result.stdout_bytes), decode(result.stderr_bytes)
    kept = arguments.limit_bytes
    shown: dict[str, Any] = {
        "exit_code": result.exit_code,
        "ended_by": result.ended_by,
        "duration_s": round(result.duration_s, 3),
        "stdout": stdout.text,
        "stderr": stderr.text,
        "stdout_bytes": result.stdout_total,
        "stderr_bytes": result.stderr_total,
        "is_cut": max(result.stdout_total, result.stderr_total) > kept,
        "is_replaced": stdout.is_replaced or stderr.is_replaced,
    }
    return shown | ({"refused": list(result.refused)} if result.refused else {})


async def _start(held: ClientSandbox, arguments: given.StartArguments) -> dict[str, Any]:
    async with held.writing():
        process = await held.start_process(arguments.words, arguments.cwd)
    if process.failure is not None:
        raise process.failure
    return {"process": process.handle, **process.state()}


async def _poll(held: ClientSandbox, arguments: given.PollArguments) -> dict[str, Any]:
    process = held.process(arguments.process)
    await process.wait_for_news(arguments.cursor, arguments.wait_s)
    page = process.output.page(arguments.cursor, arguments.limit_bytes, is_complete=process.is_over)
    return {**process.state(), **page}


async def _write_process(held: ClientSandbox, arguments: given.WriteProcessArguments) -> dict[str, Any]:
    process = held.process(arguments.process)
    async with held.writing():
        return {**process.write(arguments.data, end=arguments.end), **process.state()}


async def _stop(held: ClientSandbox, arguments: given.StopArguments) -> dict[str, Any]:
    process = held.process(arguments.process)
    await process.stop(signal.Signals[f"SIG{arguments.signal}"], arguments.wait_s)
    return process.state()


# --- files


async def _read(held: ClientSandbox, arguments: given.ReadArguments) -> dict[str, Any]:
    data = bytearray()
    pieces = held.sandbox.stream_file(arguments.path, offset=arguments.cursor)
    try:
        async for piece in pieces:
            data += piece[: arguments.limit_bytes + 1 - len(data)]
            if len(data) > arguments.limit_bytes:
                break
    finally:
        await pieces.aclose()
    is_last = len(data) <= arguments.limit_bytes
    page, taken = encode_page(bytes(data[: arguments.limit_bytes]), is_last=is_last)
    return {**page, "next_cursor": None if is_last else arguments.cursor + taken}


async def _write(held: ClientSandbox, arguments: given.WriteArguments) -> dict[str, Any]:
    async with held.writing() as sandbox:
        await sandbox.write_file(arguments.path, arguments.data, mode=0o755 if arguments.executable else None)
    return {"path": arguments.path, "written_bytes": len(arguments.data)}


async def _list_files(held: ClientSandbox, arguments: given.ListFilesArguments) -> dict[str, Any]:
    entries = await held.sandbox.list_dir(arguments.path, limit=_MAX_ENTRIES)
    end = arguments.cursor + arguments.limit
    shown = []
    for entry in entries[arguments.cursor : end]:
        name = decode(entry.name.encode("utf-8", "surrogateescape"))
        row: dict[str, Any] = {"name": name.text, "kind": entry.kind, "size": entry.size}
        shown.append(row | ({"is_replaced": True} if name.is_replaced else {}))
    return {"entries": shown, "total": len(entries), "next_cursor": end if end < len(entries) else None}


# --- changes


async def _diff(registry: SandboxRegistry, caller: Caller, arguments: given.DiffArguments) -> dict[str, Any]:
    held = registry.find(arguments.sandbox, caller.owner)
    if held.is_open:
        return await _call_inside(held, "changes_diff", arguments, changes.diff)
    return await changes.diff(held, arguments)


async def _apply(
    registry: SandboxRegistry, caller: Caller, arguments: given.SandboxArguments
) -> dict[str, Any]:
    held = registry.find(arguments.sandbox, caller.owner)
    with registry.applying() if registry.options.allows_apply else nullcontext():
        return await changes.apply(registry.options, caller.client, held)


TOOLS: Mapping[str, ToolEntry] = {
    "sandbox_open": ToolEntry(
        "Open a sandbox on a directory, normally on a private copy of it. Returns the handle that the other tools "
        "take. Everything in it is recorded. Close it with sandbox_close when you are done.",
        given.OpenArguments,
        _open,
        is_inside=False,
    ),
    "sandbox_list": ToolEntry(
        "List the sandboxes of this session with their handles and states.",
        given.ListArguments,
        _list,
        is_inside=False,
        is_read_only=True,
    ),
    "sandbox_close": ToolEntry(
        "Close a sandbox: everything in it is killed, its changes are kept for review, its record is sealed.",
        given.SandboxArguments,
        _close,
        is_inside=False,
    ),
    "command_run": ToolEntry(
        "Run a command in a sandbox to its end, and return its exit code and output. Give a shell command, or argv. Of "
        "long output the beginning and the end are returned. For a server or a long job use process_start.",
        given.RunArguments,
        _run,
    ),
    "process_start": ToolEntry(
        "Start a process in a sandbox that goes on in the background. Returns the handle for process_poll, "
        "process_write and process_stop.",
        given.StartArguments,
        _start,
    ),
    "process_poll": ToolEntry(
        "Return the output of a process from a cursor on (stdout and stderr together, in the order of their arrival), "
        "and whether it still runs. Begin with cursor 0, continue with next_cursor.",
        given.PollArguments,
        _poll,
        is_read_only=True,
    ),
    "process_write": ToolEntry(
        "Write to the input of a process, all of it or nothing; end=true ends the input afterwards.",
        given.WriteProcessArguments,
        _write_process,
    ),
    "process_stop": ToolEntry(
        "Stop a process: send it a signal, and kill it with everything it started if it does not end in time.",
        given.StopArguments,
        _stop,
    ),
    "file_read": ToolEntry(
        "Read a file in a sandbox, in pages. Text comes as text, anything else as base64.",
        given.ReadArguments,
        _read,
        is_read_only=True,
    ),
    "file_write": ToolEntry(
        "Write a file in a sandbox; an existing one is replaced at once.",
        given.WriteArguments,
        _write,
    ),
    "file_list": ToolEntry(
        "List the entries of a directory in a sandbox, by name, in pages.",
        given.ListFilesArguments,
        _list_files,
        is_read_only=True,
    ),
    "changes_diff": ToolEntry(
        "Return what changed in a sandbox since it was opened: the files, and the patch in pages. Works while it is "
        "open, unless a process runs in it, and after it was closed.",
        given.DiffArguments,
        _diff,
        is_inside=False,
        is_read_only=True,
    ),
    "changes_apply": ToolEntry(
        "Ask for the changes of a closed sandbox to be applied to the workspace itself. Normally a person decides "
        "later; the result says whether anything was applied.",
        given.SandboxArguments,
        _apply,
        is_inside=False,
    ),
    "snapshot_create": ToolEntry(
        "Keep the state of a sandbox's files, and return the snapshot's id for snapshot_restore. Files that git ignores "
        "are not in it. "
        "No process may run in the sandbox.",
        given.SandboxArguments,
        changes.create_snapshot,
    ),
    "snapshot_restore": ToolEntry(
        "Set the files of a sandbox back to a snapshot; `start` is the state in which it was opened. The state before "
        "is kept as a new snapshot. No process may run in the sandbox.",
        given.SnapshotArguments,
        changes.restore_snapshot,
    ),
}
