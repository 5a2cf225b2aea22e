"""Reads, writes, lists and removes files inside a sandbox, each by a process inside that is subject to the fence."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Literal, cast

from ringfence.errors import SandboxFileError
from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.command import SandboxProcess
from ringfence.sandbox.protocol.records import Exit, Failure
from ringfence.sandbox.protocol.session import GuestSession

EntryKind = Literal["file", "dir", "link", "other"]
_LISTING_BYTES = 16 * 1024**2
_SIZE_DIGITS = 20
_READ_S, _LIST_S, _REMOVE_S, _PUT_S = 600.0, 60.0, 120.0, 120.0
"""Time limits of the operations, which the guest enforces; `_PUT_S` counts from the last byte that is sent."""


@frozen
class DirEntry:
    """One entry of a directory inside."""

    name: str
    kind: EntryKind
    size: int


async def read_file(session: GuestSession, path: str, limit_bytes: int) -> bytes:
    """Read a file. Raises as `Sandbox.read_file`."""
    content = await _read_bounded(session, "read", path, limit_bytes, _READ_S)
    if content is None:
        raise SandboxFileError(
            f"{path!r} is larger than {limit_bytes} bytes; raise limit_bytes, or read it with stream_file",
            path=path,
            errno_name="EFBIG",
        )
    return content


async def _read_bounded(
    session: GuestSession, operation: str, path: str, limit_bytes: int, timeout_s: float
) -> bytes | None:
    """Return the output of an operation; if it is larger than the limit, kill the operation and return None."""
    output = bytearray()

    def gather(kind: int, chunk: bytes) -> None:
        if len(output) <= limit_bytes:
            output.extend(chunk)
            channel.consumed(kind, len(chunk))
        else:
            channel.post(frames.KILL)

    channel = session.open_operation(operation, path, timeout_s=timeout_s)
    channel.sink = gather
    end = await session.finish(channel, b"", timeout_s)
    if len(output) > limit_bytes:
        return None
    _check(end, operation, path)
    return bytes(output)


async def stream_file(session: GuestSession, path: str, offset: int = 0) -> AsyncGenerator[bytes]:
    """Read a file in pieces. Raises as `Sandbox.read_file`."""
    extra = [("offset", offset)] if offset else []
    channel = session.open_operation("read", path, extra=extra)
    process = SandboxProcess(("read", path), channel)
    try:
        async for chunk in process.stdout:
            yield chunk
    finally:
        await session.abandon(channel)
    _check(await channel.wait(), "read", path)


async def write_file(
    session: GuestSession, path: str, data: bytes | AsyncIterator[bytes], mode: int | None
) -> None:
    """Write bytes to a file. Raises as `Sandbox.write_file`."""
    extra = [] if mode is None else [("mode", mode)]
    channel = session.open_operation("write", path, extra=extra)
    try:
        if isinstance(data, AsyncIterable):
            async for chunk in data:
                await channel.send_stdin(chunk)
        else:
            await channel.send_stdin(data)
        end = await session.finish(channel, b"", _PUT_S)
    finally:
        await session.abandon(channel)
    _check(end, "write", path)


async def list_dir(session: GuestSession, path: str, limit: int) -> list[DirEntry]:
    """List the entries of a directory, by name. Raises as `Sandbox.list_dir`."""
    listing = await _read_bounded(session, "list", path, _LISTING_BYTES, _LIST_S)
    if listing is None or listing.count(b"\0") > 3 * limit:
        raise SandboxFileError(f"{path!r} has more than {limit} entries", path=path, errno_name="E2BIG")
    entries = parse_listing(listing)
    if entries is None:
        raise SandboxFileError(
            f"could not list {path!r} inside the sandbox: the guest sent no valid listing",
            path=path,
            errno_name="EIO",
        )
    return sorted(entries, key=lambda entry: entry.name)


def parse_listing(data: bytes) -> list[DirEntry] | None:
    """Parse the entries of a listing; return None if it is malformed or holds an invalid name (`..`, `a/b`)."""
    fields = data.split(b"\0")
    if fields.pop() or len(fields) % 3:
        return None
    entries = []
    for kind, size, name in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        if not size.isdigit() or len(size) > _SIZE_DIGITS or b"/" in name or name in (b"", b".", b".."):
            return None
        entries.append(DirEntry(name.decode("utf-8", "surrogateescape"), _kind(kind), int(size)))
    return entries


async def remove(session: GuestSession, path: str) -> None:
    """Remove a file or a directory. Raises as `Sandbox.remove`."""
    channel = session.open_operation("remove", path, timeout_s=_REMOVE_S)
    _check(await session.finish(channel, b"", _REMOVE_S), "remove", path)


def _check(end: Exit | Failure, verb: str, path: str) -> None:
    if isinstance(end, Failure):
        raise SandboxFileError(
            f"could not {verb} {path!r} inside the sandbox: {end.message}",
            path=path,
            errno_name=end.errno_name,
        )
    if end.exit_code or end.ended_by != "exit":
        raise SandboxFileError(
            f"could not {verb} {path!r} inside the sandbox: ended by {end.ended_by}",
            path=path,
            errno_name="EIO",
        )


def _kind(kind: bytes) -> EntryKind:
    text = kind.decode("ascii", "replace")
    return cast("EntryKind", text if text in ("file", "dir", "link") else "other")
