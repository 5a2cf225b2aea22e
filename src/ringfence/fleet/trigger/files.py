"""Changed files as a trigger: batches of what changed below a directory.

Names are made by whoever may write there, an agent as a rule: they are data from outside, and shown escaped.
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

MOST_CHANGES: Final = 1000
"""In a batch; the others are counted."""
SETTLE_S: Final = 2.0
"""A batch is given out once nothing has changed for so long, unless a watch says otherwise."""
LONGEST_WAIT_S: Final = 60.0
"""A batch is given out at the latest so long after its first change, or ten times what it takes to settle."""
POLL_S: Final = 1.0
_LOOK_S: Final = 5.0
_MOST_MOUNTS: Final = 10_000
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "vboxsf", "virtiofs", "glusterfs", "lustre"}
)
"""File systems that do not tell what others than this machine change. So do those of FUSE, `fuse.sshfs` and the like."""


@dataclass(frozen=True)
class FileWatch:
    """What is watched.

    Raises:
        UsageError: A pattern is malformed.
    """

    root: Path
    """A directory."""
    patterns: tuple[str, ...] = ("*",)
    """As in `.gitignore`, relative to the directory; a later one with `!` takes names out. `.git` is never watched."""
    polls: bool | None = None
    """Look every second instead of being told; None: where the file system does not tell."""
    settle_s: float = SETTLE_S
    """A batch is given out once nothing has changed for so long."""

    def __post_init__(self) -> None:
        _ = self._spec

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        try:
            return GitIgnoreSpec.from_lines(self.patterns)
        except ValueError as exc:
            raise UsageError(f"a pattern among {list(self.patterns)!r} is malformed: {exc}") from exc

    def is_wanted(self, path: str) -> bool:
        """Whether a change of this path, relative to the directory, counts."""
        return ".git" not in path.split("/") and self._spec.match_file(path)


@dataclass(frozen=True)
class FileChange:
    """A path that changed."""

    kind: str
    """`added`, `modified` or `deleted`."""
    path: str
    """Relative to the watched directory, as it is: only for opening the file."""

    @property
    def shown(self) -> str:
        """The path for people and prompts: control characters, quotes and what is not ASCII are escaped as in JSON."""
        return json.dumps(self.path)[1:-1].replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class FileBatch:
    """What changed in one go."""

    changes: tuple[FileChange, ...]
    """By path, one for each, at most a thousand."""
    more: int
    """How many further paths changed."""

    def as_payload(self) -> dict[str, object]:
        """For a prompt's template, as `files`."""
        return {
            "changes": [{"kind": change.kind, "path": change.shown} for change in self.changes],
            "paths": [change.shown for change in self.changes],
            "more": self.more,
        }


async def changes(watch: FileWatch) -> AsyncIterator[FileBatch]:
    """Batches of changes, until the caller leaves.

    Changes below symbolic links are not given: they are elsewhere. (The system is asked to watch there all the same, so
    links to large trees cost watches.) A change of a name that is no UTF-8 is given as `more` alone, since which others
    changed at that moment is not known.

    Raises:
        UsageError: The directory is not there, or is none.
        InfrastructureFault: It went away, or the system watches no more for this user.
    """
    root, polls = await anyio.to_thread.run_sync(_prepared, watch)  # what may be far away may block
    # Each watch keeps one thread, which must not be missing to others.
    threads = anyio.to_thread.current_default_thread_limiter()
    threads.total_tokens += 1
    try:
        async for found in _noticed(watch, root, polls=polls):
            if found is None:
                yield FileBatch((), 1)
            elif batch := await anyio.to_thread.run_sync(_batch, watch, root, found):
                yield batch
    finally:
        threads.total_tokens -= 1


async def _noticed(
    watch: FileWatch, root: Path, *, polls: bool
) -> AsyncIterator[set[tuple[Change, str]] | None]:
    """What the watcher tells; None where a name was no text, at which it gives up and is begun again."""
    while True:
        try:
            async for found in awatch(
                root,
                watch_filter=None,
                debounce=int(max(LONGEST_WAIT_S, 10 * watch.settle_s) * 1000),
                step=max(1, int(watch.settle_s * 1000)),
                rust_timeout=int(_LOOK_S * 1000),
                yield_on_timeout=True,
                force_polling=polls,
                poll_delay_ms=int(POLL_S * 1000),
                ignore_permission_denied=True,
            ):
                yield found
        except (OSError, RuntimeError, ExceptionGroup) as exc:
            if not _is_about_a_name(exc):
                raise InfrastructureFault(
                    f"{str(watch.root)!r} cannot be watched ({exc}); raise fs.inotify.max_user_watches, or set polling"
                ) from exc
        yield None


def _is_about_a_name(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_about_a_name(one) for one in error.exceptions)
    return isinstance(error, RuntimeError) and "Unable to decode path" in str(error)


def needs_polling(path: Path, mounts: str | None = None) -> bool:
    """Whether a directory is on a file system that does not tell of every change.

    Args:
        path: Absolute, without links.
        mounts: The text of `/proc/self/mountinfo`; None: this process's. Without one nothing needs it.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return False
    best, kind = "", ""
    for line in mounts.splitlines()[:_MOST_MOUNTS]:
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
    return kind in _REMOTE or kind.startswith("fuse.")


def _prepared(watch: FileWatch) -> tuple[Path, bool]:
    root = Path(os.path.realpath(watch.root))
    if not root.is_dir():
        raise UsageError(
            f"{str(watch.root)!r} cannot be watched: it is no directory; make it, or name another"
        )
    return root, needs_polling(root) if watch.polls is None else watch.polls


def _batch(watch: FileWatch, root: Path, found: Iterable[tuple[Change, str]]) -> FileBatch | None:
    if not root.is_dir():
        raise InfrastructureFault(f"{str(watch.root)!r} went away while it was watched; make it again")
    kinds: dict[str, Change] = {}
    for kind, name in found:
        path = os.path.relpath(name, root)
        if path != "." and watch.is_wanted(path) and _is_inside(root, path):
            earlier = kinds.get(path)
            kinds[path] = Change.modified if earlier not in (None, kind) else kind
    if not kinds:
        return None
    paths = sorted(kinds)
    shown = tuple(FileChange(kinds[path].raw_str(), path) for path in paths[:MOST_CHANGES])
    return FileBatch(shown, len(paths) - len(shown))


def _is_inside(root: Path, path: str) -> bool:
    parent = root / Path(path).parent
    return os.path.realpath(parent) == str(parent)
