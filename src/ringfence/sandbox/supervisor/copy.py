"""Copies files and directories into and out of a sandbox, through a `tar` inside.

A copy out of the sandbox is unpacked beside its target and moved there at the end, so that no half-made copy is seen.
Directories of the host are reached by descriptors: in a workspace that is shown inside, an agent could put a link in any
path.
"""

import os
import secrets
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path, PurePosixPath

import anyio
import anyio.from_thread
import anyio.to_thread

from ringfence.errors import SandboxFileError, UsageError
from ringfence.removal import remove_tree
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.command import SandboxProcess
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.tar.pack import pack_copy
from ringfence.sandbox.tar.stream import DAMAGED, Bounds, Transfer
from ringfence.sandbox.tar.unpack import unpack_copy
from ringfence.sandbox.workspace.tree import Tree

LIMIT_BYTES = 4 * 1024**3
LIMIT_ENTRIES = 200_000
_COMPLAINT_BYTES = 2000
_END_S = 2.0
_REMOVE_S = 60.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


async def copy_out(
    sandbox: Sandbox, source: str, target: Path, *, limit_bytes: int = LIMIT_BYTES
) -> Transfer:
    """Copy a file or directory from inside to the host.

    Args:
        sandbox: The sandbox.
        source: Path inside, relative to the workspace or absolute.
        target: Path of the copy; if that is a directory, the copy is put into it under its own name.
        limit_bytes: Largest accepted size.

    Raises:
        SandboxFileError: The source does not exist or is too large, or the received bytes are not an archive.
        UsageError: There is already a directory at the target.
        InfrastructureFault: It cannot be written.
    """
    inside = PurePosixPath(sandbox.session.inside(source))
    name = inside.name
    if not name or name == "..":
        raise UsageError(f"{source!r} has no name of its own; name a file or directory below it")
    final = target / name if target.is_dir() else target  # noqa: ASYNC240 -- one call
    _check_free(final)
    shown = sandbox.placement.workspace_source
    async with _tar(sandbox, "-C", str(inside.parent), "-cf", "-", "--", f"./{name}") as (process, complaint):

        async def chunk() -> bytes:
            return await anext(process.stdout, b"")

        def receive(_count: int) -> bytes:
            return anyio.from_thread.run(chunk)

        def work() -> Transfer:
            failure = f"nothing can be copied to {str(final)!r}"
            with _opened(final.parent, shown, failure) as folder, _scratch_in(folder, failure) as scratch:
                with Tree(final.parent, at=scratch) as tree:
                    bounds = Bounds(limit_bytes, LIMIT_ENTRIES)
                    copied = unpack_copy(receive, tree, bounds, path=source)
                _move(scratch, name, folder, final, copied)
                return copied

        try:
            return await anyio.to_thread.run_sync(work)
        except DAMAGED as exc:
            # Give the `tar` a moment to end, so that it can report why.
            with anyio.move_on_after(_END_S):
                async for _chunk in process.stdout:
                    pass
            await process.kill()
            await process.wait()
            raise SandboxFileError(
                f"could not copy {source!r} out of the sandbox: {complaint() or exc}",
                path=source,
                errno_name="EIO",
            ) from exc


async def copy_in(sandbox: Sandbox, source: Path, target: str) -> Transfer:
    """Copy a file or directory from the host to the inside.

    Args:
        sandbox: The sandbox.
        source: Path on the host; links in it are left out.
        target: Path inside; if that is a directory, the copy is put into it under the source's own name.

    Raises:
        UsageError: The source does not exist, or is neither a file nor a directory.
        SandboxFileError: It cannot be written inside.
    """
    if not source.name or source.name == "..":
        raise UsageError(f"{str(source)!r} has no name of its own; name a file or directory")
    inside = PurePosixPath(sandbox.session.inside(target))
    into, name = str(inside.parent), inside.name
    if await _is_directory(sandbox, inside, target):
        into, name = str(inside), source.name
    shown = sandbox.placement.workspace_source
    async with _tar(sandbox, "-C", into, "-xf", "-") as (process, complaint):

        def send(data: bytes) -> None:
            anyio.from_thread.run(process.stdin.send, bytes(data))

        def work() -> Transfer:
            with _opened(source.parent, shown, f"{str(source)!r} cannot be copied") as folder:
                return pack_copy(source, send, name=name, folder=folder)

        copied = await anyio.to_thread.run_sync(work)
        await process.stdin.aclose()
        end = await process.wait()
    if end.exit_code:
        raise SandboxFileError(
            f"could not copy {str(source)!r} to {target!r} inside the sandbox: {complaint() or end.ended_by}",
            path=target,
            errno_name="EIO",
        )
    return copied


@asynccontextmanager
async def _tar(sandbox: Sandbox, *words: str) -> AsyncIterator[tuple[SandboxProcess, Callable[[], str]]]:
    """Start a `tar` inside; yield it and a function that returns its stderr in one line. Its streams are unrecorded."""
    argv, said = ("tar", *words), bytearray()
    channel = sandbox.session.open(argv, None, None, None, extra=[("record", "command")])
    process = SandboxProcess(argv, channel)

    def take(kind: int, chunk: bytes) -> None:
        if kind == frames.STDOUT:
            process.stdout.feed(chunk)
        else:
            said.extend(chunk[: _COMPLAINT_BYTES - len(said)])
            channel.consumed(kind, len(chunk))

    channel.sink = take
    try:
        yield process, lambda: "; ".join(said.decode("utf-8", "replace").split("\n")).strip("; ")
    finally:
        await sandbox.session.abandon(channel)


async def _is_directory(sandbox: Sandbox, inside: PurePosixPath, target: str) -> bool:
    try:
        await sandbox.list_dir(str(inside))
    except SandboxFileError as exc:
        if exc.errno_name not in ("ENOENT", "ENOTDIR") or target.endswith("/"):
            raise
        return False
    return True


# --- directories of the host


@contextmanager
def _opened(path: Path, shown: Path | None, failure: str) -> Iterator[int]:
    """Open a directory. Below a directory that is shown inside, no link is followed, as an agent may have made it.

    Raises:
        UsageError: There is a link, or the directory cannot be opened.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 -- by its text, without resolving links
    roots = (
        []
        if shown is None
        else [one for one in (whole, *whole.parents) if one.exists() and one.samefile(shown)]
    )
    try:
        folder = _open_below(roots[-1], whole) if roots else os.open(path, _DIRECTORY)
    except NotADirectoryError as exc:
        if not roots:
            raise UsageError(f"{failure}: {exc.strerror}") from exc
        raise UsageError(
            f"{str(path)!r} leads through a link in the workspace, which somebody inside can have made; name the "
            "directory that is meant"
        ) from exc
    except OSError as exc:
        raise UsageError(f"{failure}: {exc.strerror}") from exc
    try:
        yield folder
    finally:
        os.close(folder)


def _open_below(root: Path, path: Path) -> int:
    with Tree(root) as tree:
        return os.dup(tree.directory(b"" if path == root else os.fsencode(path.relative_to(root))))


@contextmanager
def _scratch_in(folder: int, failure: str) -> Iterator[int]:
    """Open an empty directory, which is removed with its contents at the end; yield its descriptor."""
    name = f".ringfence-{secrets.token_hex(6)}"
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
        scratch = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as exc:
        raise UsageError(f"{failure}: {exc.strerror}") from exc
    try:
        yield scratch
    finally:
        os.close(scratch)
        # If a process inside has put, or keeps putting, something else in its place, that stays.
        with suppress(OSError):
            remove_tree(Path(f"/proc/self/fd/{folder}", name), limit_s=_REMOVE_S)


def _check_free(final: Path) -> None:
    if final.is_dir() and not final.is_symlink():
        raise UsageError(f"{str(final)!r} is a directory already; remove it, or name another target")


def _move(scratch: int, name: str, folder: int, final: Path, copied: Transfer) -> None:
    try:
        os.rename(name, final.name, src_dir_fd=scratch, dst_dir_fd=folder)
    except FileNotFoundError:
        kind = "it is neither a file nor a directory"
        raise tarfile.ReadError(": ".join((kind, *copied.left_out[:1]))) from None
    except OSError as exc:
        _check_free(final)
        raise UsageError(f"nothing can be copied to {str(final)!r}: {exc.strerror}") from exc
