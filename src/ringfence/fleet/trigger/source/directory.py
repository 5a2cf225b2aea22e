"""A source of work in a local directory: `fix-the-login.md` is a task, and its text is the prompt.

A claim renames the file to a name of its own in `.claimed/`, which only one process can do. The end of the claim moves
it to `done/` or `failed/`. Links are not followed, so that users who may add tasks cannot read other files.
"""

import errno
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.fleet.trigger.source.base import (
    BODY_LIMIT_BYTES,
    Claim,
    Fetched,
    Outcome,
    Unusable,
    WorkItem,
    WorkSource,
    cut,
)

SUFFIXES: Final = (".md", ".txt", ".prompt")
_CLAIMED: Final = ".claimed"
_MAX_ENTRIES: Final = 10_000
_MAX_UNUSABLE: Final = 100
_TOKEN: Final = re.compile(r"[A-Za-z0-9]{8,64}", re.ASCII)
_MAX_NAME_BYTES: Final = 120
_Result = TypeVar("_Result")


class DirectorySource(WorkSource):
    """A directory of task files.

    Args:
        root: The directory. `.claimed`, `done` and `failed` are created in it.

    Raises:
        UsageError: It is not a directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        if not root.is_dir():
            raise UsageError(
                f"{str(root)!r} cannot contain tasks: it is not a directory; create it, or name another"
            )

    async def fetch(self, limit: int) -> Fetched:
        """See `WorkSource`."""
        return await self._do(lambda top: _fetch(top, limit))

    async def claim(self, id: str, token: str) -> Claim | None:
        """See `WorkSource`."""
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"claim token {token[:80]!r} must be 8 to 64 letters and digits")
        return await self._do(lambda top: _claim(top, id, token))

    async def complete(self, claim: Claim, outcome: Outcome, text: str) -> None:
        """See `WorkSource`. The comment is written beside the file, as `NAME.result`."""
        await self._do(lambda top: _complete(top, claim, outcome, text))

    async def _do(self, act: Callable[[int], _Result]) -> _Result:
        def acting() -> _Result:
            try:
                with _opened(self.root) as top:
                    return act(top)
            except OSError as exc:
                raise InfrastructureFault(
                    f"tasks in {str(self.root)!r} cannot be handled ({exc.strerror}); {next_step(exc)}"
                ) from exc

        return await anyio.to_thread.run_sync(acting)


@contextmanager
def _opened(path: Path | str, *, within: int | None = None) -> Iterator[int]:
    """Open a directory; one below another must not be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if within is None else os.O_NOFOLLOW)
    directory = os.open(path, flags, dir_fd=within)
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def _subdirectory(top: int, name: str) -> Iterator[int]:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=top)
    with _opened(name, within=top) as directory:
        yield directory


def _fetch(top: int, limit: int) -> Fetched:
    items: list[WorkItem] = []
    unusable: list[Unusable] = []
    for name in _names(top):
        if len(items) == limit:
            break
        found = _read(top, name, name)
        if isinstance(found, WorkItem):
            items.append(found)
        elif found is not None and len(unusable) < _MAX_UNUSABLE:
            unusable.append(found)
    return Fetched(tuple(items), tuple(unusable))


def _names(top: int) -> list[str]:
    """Return the names of tasks, the oldest first."""
    with os.scandir(top) as entries:
        limited = itertools.islice(entries, _MAX_ENTRIES)
        # Files may be removed at any moment.
        dated = [(_changed(entry), entry.name) for entry in limited if _is_task(entry.name)]
    return [name for _, name in sorted(dated)]


def _changed(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_task(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".") and len(os.fsencode(name)) <= _MAX_NAME_BYTES


def _read(directory: int, name: str, id: str) -> WorkItem | Unusable | None:
    """Read a task file; None if it is gone."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as exc:
        return Unusable(id, "it is a link" if exc.errno == errno.ELOOP else exc.strerror or "unreadable")
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            return Unusable(id, "it is not a regular file")
        with os.fdopen(file, "rb", closefd=False) as opened:
            raw = opened.read(BODY_LIMIT_BYTES + 1)
    finally:
        os.close(file)
    if len(raw) > BODY_LIMIT_BYTES:
        return Unusable(id, f"it has more than {BODY_LIMIT_BYTES} bytes")
    try:
        body = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Unusable(id, "it is not UTF-8")
    if not body.strip():
        return Unusable(id, "it is empty")
    try:
        id.encode("utf-8")
        changed = datetime.fromtimestamp(facts.st_mtime, UTC)
    except UnicodeEncodeError:
        return Unusable(id, "its name is not UTF-8")
    except (ValueError, OverflowError, OSError):
        return Unusable(id, "the time of its last change is not valid")
    return WorkItem(id, Path(id).stem, body, changed)


def _claim(top: int, id: str, token: str) -> Claim | None:
    if not _is_task(id) or "/" in id:
        return None
    handle = f"{token}.{id}"
    with _subdirectory(top, _CLAIMED) as claimed:
        found = _read(claimed, handle, id)
        if found is None:
            try:
                os.rename(id, handle, src_dir_fd=top, dst_dir_fd=claimed)
            except FileNotFoundError:
                return None
            found = _read(claimed, handle, id)
        if isinstance(found, Unusable):
            _move(claimed, handle, top, "failed")
            return None
    return Claim(found, token, handle) if found else None


def _complete(top: int, claim: Claim, outcome: Outcome, text: str) -> None:
    with _subdirectory(top, _CLAIMED) as claimed:
        if not _exists(claimed, claim.handle):
            return
        _write(top, outcome.value, f"{claim.handle}.result", text)
        _move(claimed, claim.handle, top, outcome.value)


def _move(source: int, name: str, top: int, subdirectory: str) -> None:
    with _subdirectory(top, subdirectory) as target:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write(top: int, subdirectory: str, name: str, text: str) -> None:
    """Write a new file; an existing one stays unchanged."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _subdirectory(top, subdirectory) as directory:
        try:
            file = os.open(name, flags, 0o600, dir_fd=directory)
        except FileExistsError:
            return
        with os.fdopen(file, "wb") as opened:
            opened.write(cut(text).encode("utf-8", "replace") + b"\n")
