"""Files and directories into a sandbox and out of it, through a `tar` inside.

What comes out is unpacked beside its target and moved there at the end: nothing half-copied is ever seen.
"""

import os
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path, PurePosixPath

import anyio
import anyio.from_thread
import anyio.to_thread

from ringfence.errors import SandboxDied, SandboxFileError, UsageError
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement
from ringfence.sandbox.protocol.process import WINDOW, SandboxProcess
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.tar import DAMAGED, Bounds, Transfer, pack_copy, unpack_copy
from ringfence.sandbox.workspace.tree import Tree

LIMIT_BYTES = 4 * 1024**3
LIMIT_ENTRIES = 200_000
_SAID_BYTES = 2000
_LAST_WORDS_S = 2.0
_REMOVE_S = 60.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


async def copy_out(
    sandbox: Sandbox,
    source: str,
    target: Path,
    *,
    limit_bytes: int = LIMIT_BYTES,
) -> Transfer:
    """Copy a file or directory from inside to the host.

    Args:
        sandbox: Where it is.
        source: Path inside, relative to the workspace or absolute.
        target: Where it shall be; if that is a directory, in it under its own name.
        limit_bytes: More than this is refused.

    Raises:
        SandboxFileError: It is not there, too large, or what came is no archive.
        UsageError: There is a directory already where it would be.
        InfrastructureFault: It cannot be written.
    """
    inside = PurePosixPath(sandbox.session.inside(source))
    name = inside.name
    if not name or name == "..":
        raise UsageError(f"{source!r} has no name of its own; name a file or directory below it")
    final = target / name if target.is_dir() else target  # noqa: ASYNC240 -- one call
    _check_free(final)
    shown = sandbox.placement.workspace_source
    argv = ["tar", "-C", str(inside.parent), "-cf", "-", "--", f"./{name}"]
    async with _archiver(sandbox, argv) as (process, complaint):

        def take() -> Transfer:
            with _scratch_beside(final, shown) as (folder, scratch):
                with Tree(final.parent, at=scratch) as tree:
                    bounds = Bounds(limit_bytes, LIMIT_ENTRIES)
                    copied = unpack_copy(_Output(process), tree, bounds, path=source)
                _put(scratch, name, folder, final)
                return copied

        try:
            return await anyio.to_thread.run_sync(take)
        except DAMAGED as exc:
            await _let_end(process)
            raise SandboxFileError(
                f"could not copy {source!r} out of the sandbox: {await complaint.text() or exc}",
                path=source,
                errno_name="EIO",
            ) from exc


async def copy_in(sandbox: Sandbox, source: Path, target: str) -> Transfer:
    """Copy a file or directory from the host to the inside.

    Args:
        sandbox: Where to.
        source: On the host; links in it are left out.
        target: Path inside; if that is a directory, in it under the source's own name.

    Raises:
        UsageError: The source is not there, or neither a file nor a directory.
        SandboxFileError: It cannot be written inside.
    """
    folder, name = await _place_inside(sandbox, source, target)
    async with _archiver(sandbox, ["tar", "-C", folder, "-xf", "-"]) as (process, complaint):
        copied = await anyio.to_thread.run_sync(
            lambda: _pack(source, name, _Input(process), sandbox.placement)
        )
        await process.stdin.aclose()
        end = await process.wait()
    if end.exit_code:
        raise SandboxFileError(
            f"could not copy {str(source)!r} to {target!r} inside the sandbox: {await complaint.text() or end.ended_by}",
            path=target,
            errno_name="EIO",
        )
    return copied


class _Complaint:
    """What a command wrote on stderr, short."""

    def __init__(self) -> None:
        self._said = bytearray()
        self._is_over = anyio.Event()

    async def text(self) -> str:
        await self._is_over.wait()
        return "; ".join(self._said.decode("utf-8", "replace").split("\n")).strip("; ")

    async def listen(self, process: SandboxProcess) -> None:
        with suppress(SandboxDied):  # whoever waits for the command is told
            async for chunk in process.stderr:
                self._said += chunk[: _SAID_BYTES - len(self._said)]
        self._is_over.set()


@asynccontextmanager
async def _archiver(
    sandbox: Sandbox, argv: Sequence[str]
) -> AsyncIterator[tuple[SandboxProcess, _Complaint]]:
    """A command inside whose streams are archives, and so no matter for the record."""
    process, complaint = SandboxProcess(tuple(argv)), _Complaint()
    channel = sandbox.session.open(
        argv, None, None, None, window=WINDOW, sink=process.on_output, extra=[("record", "command")]
    )
    process.attach(channel)
    error: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(complaint.listen, process)
            try:
                yield process, complaint
            except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                error = exc
            tasks.cancel_scope.cancel()
    finally:
        await sandbox.session.abandon(channel)
    if error is not None:
        raise error


async def _let_end(process: SandboxProcess) -> None:
    """Let a command that is of no use any more come to its end, so that it can say why; but not for long."""
    with anyio.move_on_after(_LAST_WORDS_S):
        async for _chunk_of_it in process.stdout:
            pass
    await process.kill()
    await process.wait()


@frozen
class _Output:
    """What a command writes, for a thread that reads it."""

    process: SandboxProcess

    def read(self, _count: int) -> bytes:
        return anyio.from_thread.run(self._chunk)

    async def _chunk(self) -> bytes:
        return await anext(self.process.stdout, b"")


@frozen
class _Input:
    """What a command reads, for a thread that writes it."""

    process: SandboxProcess

    def write(self, data: bytes) -> None:
        anyio.from_thread.run(self.process.stdin.send, bytes(data))


async def _place_inside(sandbox: Sandbox, source: Path, target: str) -> tuple[str, str]:
    """(directory, name) of where a copy goes."""
    if not source.name or source.name == "..":
        raise UsageError(f"{str(source)!r} has no name of its own; name a file or directory")
    inside = PurePosixPath(sandbox.session.inside(target))
    try:
        await sandbox.list_dir(str(inside))
    except SandboxFileError as exc:
        if exc.errno_name not in ("ENOENT", "ENOTDIR") or target.endswith("/"):
            raise
        return str(inside.parent), inside.name
    return str(inside), source.name


@contextmanager
def _scratch_beside(final: Path, shown: Path | None) -> Iterator[tuple[int, int]]:
    """Descriptors of where a copy goes, and of an empty directory there that is removed with what is left in it.

    By descriptors, not by paths: in a workspace that is shown inside, an agent could put a link in their place.
    """
    with ExitStack() as stack:
        try:
            folder = _folder(final.parent, shown)
            stack.callback(os.close, folder)
            name = f".ringfence-{secrets.token_hex(6)}"
            os.mkdir(name, 0o700, dir_fd=folder)
            stack.callback(_discard, name, folder)
            scratch = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            stack.callback(os.close, scratch)
        except OSError as exc:
            raise UsageError(f"nothing can be copied to {str(final)!r}: {exc.strerror}") from exc
        yield folder, scratch


def _folder(path: Path, shown: Path | None) -> int:
    """A descriptor of a directory. Below the one that is shown inside, no link is followed: an agent may have made it.

    Raises:
        UsageError: There is one.
        OSError: It cannot be opened.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 -- by its words, not by where links lead
    for above in reversed((whole, *whole.parents)):
        if shown is None or not (above.exists() and above.samefile(shown)):
            continue
        below = os.fsencode(whole.relative_to(above)) if whole != above else b""
        try:
            with Tree(above) as tree:
                return os.dup(tree.directory(below))
        except NotADirectoryError as exc:
            raise UsageError(
                f"{str(path)!r} leads through a link in the workspace, which somebody inside can have made; name the "
                "directory that is meant"
            ) from exc
    return os.open(path, _DIRECTORY)


def _pack(source: Path, name: str, sink: _Input, placement: Placement) -> Transfer:
    try:
        folder = _folder(source.parent, placement.workspace_source)
    except OSError as exc:
        raise UsageError(f"{str(source)!r} cannot be copied: {exc.strerror}") from exc
    try:
        return pack_copy(source, sink, name=name, folder=folder)
    finally:
        os.close(folder)


def _discard(name: str, folder: int) -> None:
    with suppress(
        OSError
    ):  # what somebody inside has put in its place, or goes on putting there, is not ours
        remove_tree(Path(f"/proc/self/fd/{folder}", name), limit_s=_REMOVE_S)


def _check_free(final: Path) -> None:
    if final.is_dir() and not final.is_symlink():
        raise UsageError(f"{str(final)!r} is a directory already; remove it, or name another target")


def _put(scratch: int, name: str, folder: int, final: Path) -> None:
    try:
        os.rename(name, final.name, src_dir_fd=scratch, dst_dir_fd=folder)
    except FileNotFoundError:
        raise tarfile.ReadError("it is neither a file nor a directory") from None
    except OSError as exc:
        _check_free(final)
        raise UsageError(f"nothing can be copied to {str(final)!r}: {exc.strerror}") from exc
