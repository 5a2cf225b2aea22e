"""Watches a directory, and returns changes of its files in batches.

Names of files are untrusted data, since agents can choose them. They are shown escaped.
"""

import json
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import anyio.to_thread
from pathspec import GitIgnoreSpec
from watchfiles import Change, awatch

from ringfence.errors import InfrastructureFault, UsageError

MAX_CHANGES: Final = 1000
"""The most changes of a batch; further ones are counted only."""
SETTLE_S: Final = 2.0
"""The default of `FileWatch.settle_s`."""
MAX_WAIT_S: Final = 60.0
"""The longest time from the first change to its batch, unless ten times `settle_s` is longer."""
POLL_S: Final = 1.0
_CHECK_S: Final = 5.0
_MAX_MOUNTS: Final = 10_000
_REMOTE_TYPES: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "vboxsf", "virtiofs", "glusterfs", "lustre"}
)
"""File systems that do not report changes by other machines. Those of FUSE, such as `fuse.sshfs`, do not either."""


@dataclass(frozen=True)
class FileWatch:
    """The files to watch.

    Raises:
        UsageError: A pattern is malformed.
    """

    root: Path
    """The directory."""
    patterns: tuple[str, ...] = ("*",)
    """Patterns as in `.gitignore`, relative to the directory. `.git` is never watched."""
    polls: bool | None = None
    """Whether to poll every second; None: only if the file system does not report changes."""
    settle_s: float = SETTLE_S
    """How long nothing may change before a batch is returned, in seconds."""

    def __post_init__(self) -> None:
        _ = self._spec

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        try:
            return GitIgnoreSpec.from_lines(self.patterns)
        except ValueError as exc:
            raise UsageError(f"a pattern among {list(self.patterns)!r} is malformed: {exc}") from exc

    def is_wanted(self, path: str) -> bool:
        """Whether a change of a path, relative to the directory, matches."""
        return ".git" not in path.split("/") and self._spec.match_file(path)


@dataclass(frozen=True)
class FileChange:
    """A change of a file."""

    kind: str
    """`added`, `modified` or `deleted`."""
    path: str
    """The path relative to the directory, not escaped: only for opening the file."""

    @property
    def shown(self) -> str:
        """The path for people and prompts. Control characters, quotes and other than ASCII are escaped as in JSON."""
        return json.dumps(self.path)[1:-1].replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class FileBatch:
    """Changes that happened together."""

    changes: tuple[FileChange, ...]
    """One change for each path, in the order of paths, at most a thousand."""
    more: int
    """The number of further paths that changed."""

    def as_payload(self) -> dict[str, object]:
        """Return the batch as `files` of a prompt template."""
        return {
            "changes": [{"kind": change.kind, "path": change.shown} for change in self.changes],
            "paths": [change.shown for change in self.changes],
            "more": self.more,
        }


async def changes(watch: FileWatch) -> AsyncIterator[FileBatch]:
    """Yield batches of changes until the caller stops.

    Changes below symbolic links are not returned, although the kernel watches there, so links to large trees use up
    watches. A change of a name that is not UTF-8 is a batch with `more` only, since the other changes of that moment are
    not known.

    Raises:
        UsageError: The directory does not exist, or is not one.
        InfrastructureFault: The directory was removed, or the kernel has no more watches for this user.
    """
    root, polls = await anyio.to_thread.run_sync(_prepare, watch)  # a remote file system may block
    # Each watch occupies one thread.
    threads = anyio.to_thread.current_default_thread_limiter()
    threads.total_tokens += 1
    try:
        async for found in _watch_changes(watch, root, polls=polls):
            if found is None:
                yield FileBatch((), 1)
            elif batch := await anyio.to_thread.run_sync(_batch, watch, root, found):
                yield batch
    finally:
        threads.total_tokens -= 1


async def _watch_changes(
    watch: FileWatch, root: Path, *, polls: bool
) -> AsyncIterator[set[tuple[Change, str]] | None]:
    """Yield the changes of the watcher; None if it failed at a name that is not UTF-8, and was restarted."""
    while True:
        try:
            async for found in awatch(
                root,
                watch_filter=None,
                debounce=int(max(MAX_WAIT_S, 10 * watch.settle_s) * 1000),
                step=max(1, int(watch.settle_s * 1000)),
                rust_timeout=int(_CHECK_S * 1000),
                yield_on_timeout=True,
                force_polling=polls,
                poll_delay_ms=int(POLL_S * 1000),
                ignore_permission_denied=True,
            ):
                yield found
        except (OSError, RuntimeError, ExceptionGroup) as exc:
            if not _is_name_error(exc):
                raise InfrastructureFault(
                    f"{str(watch.root)!r} cannot be watched ({exc}); raise fs.inotify.max_user_watches, or set polling"
                ) from exc
        yield None


def _is_name_error(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_name_error(one) for one in error.exceptions)
    return isinstance(error, RuntimeError) and "Unable to decode path" in str(error)


def needs_polling(path: Path, mounts: str | None = None) -> bool:
    """Whether a directory is on a file system that does not report every change.

    Args:
        path: The absolute path without links.
        mounts: The text of `/proc/self/mountinfo`; None: that of this process. Without one no directory needs polling.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return False
    best, kind = "", ""
    for line in mounts.splitlines()[:_MAX_MOUNTS]:
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = (
            fields[4]
            .replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\012", "\n")
            .replace("\\134", "\\")
        )
        # A later mount on the same point hides the earlier one.
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind in _REMOTE_TYPES or kind.startswith("fuse.")


def _prepare(watch: FileWatch) -> tuple[Path, bool]:
    root = Path(os.path.realpath(watch.root))
    if not root.is_dir():
        raise UsageError(
            f"{str(watch.root)!r} cannot be watched: it is not a directory; create it, or name another"
        )
    return root, needs_polling(root) if watch.polls is None else watch.polls


def _batch(watch: FileWatch, root: Path, found: Iterable[tuple[Change, str]]) -> FileBatch | None:
    if not root.is_dir():
        raise InfrastructureFault(f"{str(watch.root)!r} was removed while it was watched; create it again")
    kinds: dict[str, Change] = {}
    for kind, name in found:
        path = os.path.relpath(name, root)
        if path != "." and watch.is_wanted(path) and _is_inside(root, path):
            earlier = kinds.get(path)
            kinds[path] = Change.modified if earlier not in (None, kind) else kind
    if not kinds:
        return None
    paths = sorted(kinds)
    shown = tuple(FileChange(kinds[path].raw_str(), path) for path in paths[:MAX_CHANGES])
    return FileBatch(shown, len(paths) - len(shown))


def _is_inside(root: Path, path: str) -> bool:
    parent = root / Path(path).parent
    return os.path.realpath(parent) == str(parent)
