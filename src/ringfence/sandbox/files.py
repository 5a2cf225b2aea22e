"""Files inside a sandbox: each operation is a process inside, under the fence's rules."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, cast

import anyio

from ringfence.errors import SandboxFileError
from ringfence.sandbox.guest import frames
from ringfence.sandbox.link import Exit, Failure
from ringfence.sandbox.process import WINDOW, SandboxProcess, errno_name
from ringfence.sandbox.session import GuestSession

EntryKind = Literal["file", "dir", "link", "other"]
_LISTING_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class DirEntry:
    """One entry of a directory inside."""

    name: str
    kind: EntryKind
    size: int


async def read_file(session: GuestSession, path: str, limit_bytes: int) -> bytes:
    """The bytes of a file. Raises as `Sandbox.read_file`."""
    parts = bytearray()

    def gather(kind: int, chunk: bytes) -> None:
        if len(parts) <= limit_bytes:
            parts.extend(chunk)
            channel.consumed(kind, len(chunk))
        else:
            channel.post(frames.KILL)

    channel = session.open_operation("read", path, gather)
    end = await session.finish(channel, b"", None)
    if len(parts) > limit_bytes:
        raise SandboxFileError(
            f"{path!r} is larger than {limit_bytes} bytes; read it with stream_file",
            path=path,
            errno_name="EFBIG",
        )
    _check(end, "read", path)
    return bytes(parts)


async def stream_file(session: GuestSession, path: str) -> AsyncIterator[bytes]:
    """The bytes of a file, in pieces. Raises as `Sandbox.read_file`."""
    process = SandboxProcess(("read", path))
    channel = session.open_operation("read", path, process.on_output, window=WINDOW)
    process.attach(channel)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.watch)
            async for chunk in process.stdout:
                yield chunk
    finally:
        await session.abandon(channel)
    _check(await channel.wait(), "read", path)


async def write_file(
    session: GuestSession, path: str, data: bytes | AsyncIterator[bytes], mode: int | None
) -> None:
    """Put bytes in a file. Raises as `Sandbox.write_file`."""
    channel = session.open_operation("write", path, lambda _kind, _chunk: None, extra=[("mode", mode or 0)])
    try:
        if isinstance(data, bytes):
            await channel.send_stdin(data)
        else:
            async for chunk in data:
                await channel.send_stdin(chunk)
        channel.post(frames.STDIN_END)
        end = await channel.wait()
    finally:
        await session.abandon(channel)
    _check(end, "write", path)


async def list_dir(session: GuestSession, path: str, limit: int) -> list[DirEntry]:
    """Entries of a directory, by name. Raises as `Sandbox.list_dir`."""
    listing = bytearray()

    def gather(kind: int, chunk: bytes) -> None:
        if len(listing) <= _LISTING_BYTES:
            listing.extend(chunk)
        channel.consumed(kind, len(chunk))

    channel = session.open_operation("list", path, gather)
    _check(await session.finish(channel, b"", 60.0), "list", path)
    fields = bytes(listing).split(b"\0")[:-1]
    if len(listing) > _LISTING_BYTES or len(fields) > 3 * limit or len(fields) % 3:
        raise SandboxFileError(f"{path!r} has more than {limit} entries", path=path, errno_name="E2BIG")
    entries = [
        DirEntry(name.decode("utf-8", "surrogateescape"), _kind(kind), int(size) if size.isdigit() else 0)
        for kind, size, name in zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    ]
    return sorted(entries, key=lambda entry: entry.name)


async def remove(session: GuestSession, path: str) -> None:
    """Remove a file or a directory. Raises as `Sandbox.remove`."""
    channel = session.open_operation("remove", path, lambda _kind, _chunk: None)
    _check(await session.finish(channel, b"", 120.0), "remove", path)


def _check(end: Exit | Failure, verb: str, path: str) -> None:
    if isinstance(end, Failure):
        raise SandboxFileError(
            f"could not {verb} {path!r} inside the sandbox: {end.message}",
            path=path,
            errno_name=errno_name(end),
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
