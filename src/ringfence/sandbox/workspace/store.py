"""Checkpoints: states of the workspace, as commits in a git store of our own outside the workspace.

Covered is what git tracks or would offer to add, with contents, links and the executable bit. Ignored files,
empty directories, owners and times are not. Files beyond a size and things that are neither file nor link are
skipped, and named in the checkpoint.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Container, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, RecordError, RingfenceError, UsageError
from ringfence.sandbox.workspace.actor import Actor, both
from ringfence.sandbox.workspace.difference import Diff, parse_diff
from ringfence.sandbox.workspace.git import Git, write_clean_git_dir
from ringfence.sandbox.workspace.ignore import Rules
from ringfence.sandbox.workspace.listing import Lister, Listing
from ringfence.sandbox.workspace.taking import Taken, Taker

PATCH_LIMIT_BYTES = 256 * 1024**2
_LOCK_TIMEOUT_S = 120.0
_BATCH_BYTES = 32 * 1024**2
_OPTIONS = ("core.compression=1", "core.bigFileThreshold=64m", "fastimport.unpackLimit=200")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/[a-z]+")


class Memo(msgspec.Struct, frozen=True):
    """What a checkpoint knows besides its tree."""

    tree: str
    rules: Rules = Rules()
    private: frozenset[bytes] = frozenset()
    """Files that only their owner could read; they are restored so."""
    git_entries: tuple[bytes, ...] = ()
    skipped: dict[bytes, str] = {}
    """What is not covered though it is not ignored, and why; directories end in a slash."""
    ignored: frozenset[bytes] = frozenset()
    """What was ignored at the beginning of the chain; directories, meant as a whole, end in a slash."""
    base: str | None = None
    """The checkpoint this one was taken to be compared with."""


def lies_in(path: bytes, places: Container[bytes]) -> bool:
    """Whether a file, or a directory above it (ending in a slash), is among `places`."""
    end = len(path)
    while end > 0:
        if path[:end] in places:
            return True
        end = path.rfind(b"/", 0, end - 1) + 1
    return False


class PatchTooLarge(RingfenceError):
    """A patch is larger than what is kept; the checkpoints hold the changes all the same."""


@dataclass(frozen=True)
class Checkpoint:
    """A state of the workspace that was kept."""

    id: str
    """A commit in the store."""
    tree: str
    """Equal states have equal trees."""
    files: int
    skipped: dict[str, str] = field(default_factory=dict)
    """Files, and whole directories (ending in a slash), that are not covered, and why."""
    git_entries: tuple[bytes, ...] = ()
    """Every `.git` below the workspace's own."""
    notes: tuple[str, ...] = ()
    duration_ms: float = 0.0


@dataclass(frozen=True)
class Blob:
    """A file of a checkpoint, without its contents."""

    path: bytes
    git_mode: int
    id: str
    size: int


class CheckpointStore:
    """The checkpoints of one workspace.

    Args:
        workspace: The workspace, resolved.
        state: The state directory.
        actor: On whose behalf the workspace is read and written; the store itself is always the caller's.
        excludes: The user's own ignore rules, in the format of `.gitignore`.
    """

    def __init__(
        self, workspace: Path, state: Path, *, actor: Actor | None = None, excludes: bytes = b""
    ) -> None:
        self.workspace = workspace
        self.actor = actor or Actor.current()
        self._excludes = excludes
        name = hashlib.sha256(os.fsencode(workspace)).hexdigest()
        self.directory = state / "checkpoints" / f"{name}.git"
        self._git = Git(self.directory, actor=Actor.current(), options=_OPTIONS)

    async def take(
        self, label: str, *, base: str | None = None, root: Path | None = None, actor: Actor | None = None
    ) -> Checkpoint:
        """Keep the state of the workspace, pinned by the ref `refs/ringfence/<label>`.

        Args:
            label: `<run>/before`, `<run>/after` or the like.
            base: A checkpoint this one will be compared with: its files are looked at even if they are
            ignored by
                now, its ignore rules count in place of those an agent may have written since, and the git
                directories of the tree are not looked into.
            root: Look at this directory in place of the workspace: a clone of it.
            actor: Who reads `root`; default as for the workspace.

        Raises:
            UsageError: There is more to keep than the limit.
            InfrastructureFault: Git failed, or another checkpoint of this workspace takes too long.
        """
        if not _LABEL.fullmatch(label):
            raise UsageError(f"{label!r} does not name a checkpoint; use <run>/<word>")
        start, began_ns = time.perf_counter(), time.time_ns()
        root, actor = root or self.workspace, actor or self.actor
        async with self._locked():
            memo = await self.memo(base) if base else None
            lister = Lister(root, actor, excludes=self._excludes, trust_git=memo is None)
            taker = Taker(self._git, root, actor, label, cuts=memo is not None)
            listing, _ = await both(lambda: lister.find(memo.rules if memo else None), taker.prepare)
            paths = listing.paths
            if memo:
                paths = {path for path in paths if not lies_in(path, memo.ignored)}
                paths |= await self._paths(memo.tree)
            taken = await taker.take(paths, began_ns)
            taken.skipped.update((path + b"/", "the directory cannot be read") for path in listing.closed)
            self._remember(taken, listing, memo, base)
        return Checkpoint(
            id=taken.commit,
            tree=taken.tree,
            files=len(taken.entries),
            skipped={os.fsdecode(path): reason for path, reason in taken.skipped.items()},
            git_entries=listing.git_entries,
            notes=tuple(listing.notes),
            duration_ms=(time.perf_counter() - start) * 1000,
        )

    async def memo(self, checkpoint: str) -> Memo:
        """What is known of a checkpoint besides its files.

        Raises:
            RecordError: There is no such checkpoint.
        """
        try:
            data = await anyio.to_thread.run_sync((self.directory / "memo" / checkpoint).read_bytes)
            return msgspec.msgpack.decode(data, type=Memo)
        except (OSError, msgspec.DecodeError) as exc:
            raise RecordError(
                f"checkpoint {checkpoint!r} is not in {self.directory}; `ringfence gc` removes old ones"
            ) from exc

    def _remember(self, taken: Taken, listing: Listing, earlier: Memo | None, base: str | None) -> None:
        private = frozenset(
            path for path, entry in taken.entries.items() if not entry.mode & 0o077 and entry.mode & 0o100000
        )
        memo = Memo(
            tree=taken.tree,
            rules=listing.rules,
            private=private,
            git_entries=listing.git_entries,
            skipped=taken.skipped,
            ignored=earlier.ignored if earlier else listing.ignored,
            base=base,
        )
        folder = make_private_dir(self.directory / "memo")
        (folder / taken.commit).write_bytes(msgspec.msgpack.encode(memo))

    async def has(self, label: str) -> bool:
        """Whether there is a checkpoint under this label."""
        if not (self.directory / "HEAD").exists():
            return False
        ref = f"refs/ringfence/{label}"
        return (await self._git.run("rev-parse", "--verify", "--quiet", ref, accept=(0, 1, 128))).ok

    async def _paths(self, tree: str) -> set[bytes]:
        result = await self._git.run("ls-tree", "-r", "-z", "--name-only", tree)
        return set(result.stdout.split(b"\0")) - {b""}

    async def diff(self, earlier: str, later: str) -> Diff:
        """What changed from one checkpoint to another."""
        options = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
        result = await self._git.run("diff-tree", *options, earlier, later)
        return parse_diff(result.stdout)

    async def patch(self, earlier: str, later: str) -> bytes:
        """The changes as a patch that `git apply` takes, binary files included.

        Raises:
            PatchTooLarge: It is larger than 256 MiB.
        """
        options = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color")
        command = ("diff-tree", *options, "--no-ext-diff", "--no-textconv", earlier, later)
        try:
            result = await self._git.run(*command, output_limit_bytes=PATCH_LIMIT_BYTES)
        except InfrastructureFault as exc:
            if "more output" not in str(exc):
                raise
            raise PatchTooLarge(
                f"the patch is larger than {PATCH_LIMIT_BYTES} bytes; use `ringfence apply` instead"
            ) from exc
        return result.stdout

    async def blobs(self, checkpoint: str) -> list[Blob]:
        """All files of a checkpoint."""
        result = await self._git.run("ls-tree", "-r", "-z", "-l", checkpoint)
        return [_blob(line) for line in result.stdout.split(b"\0") if line]

    async def contents(self, blobs: Iterable[Blob]) -> AsyncIterator[list[tuple[Blob, bytes]]]:
        """Contents of files, in lists of about 32 MiB."""
        for batch in _batches(blobs):
            asked = "".join(f"{blob.id}\n" for blob in batch).encode()
            size = sum(blob.size + 200 for blob in batch)
            answer = await self._git.run("cat-file", "--batch", stdin=asked, output_limit_bytes=size)
            yield _split_contents(batch, answer.stdout)

    async def gc(self, keep: frozenset[str]) -> int:
        """Drop the checkpoints of runs that are not in `keep`; return how many."""
        async with self._locked():
            refs = (
                await self._git.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/ringfence/")
            ).stdout
            pairs = [line.split(" ") for line in refs.decode().splitlines()]
            dead = [(ref, commit) for ref, commit in pairs if ref.split("/")[2] not in keep]
            commands = "".join(f"delete {ref}\n" for ref, _ in dead)
            if dead:
                await self._git.run("update-ref", "--stdin", stdin=commands.encode())
                kept = {commit for ref, commit in pairs if (ref, commit) not in dead}
                for _, commit in dead:
                    if commit not in kept:
                        (self.directory / "memo" / commit).unlink(missing_ok=True)
                await self._git.run("repack", "-a", "-d", "-q", timeout_s=600.0)
                await self._git.run("prune", "--expire=now", timeout_s=600.0)
        return len(dead)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold this workspace's store alone; makes the store where it is new."""
        make_private_dir(self.directory.parent)
        with (self.directory.with_suffix(".lock")).open("wb") as lock:
            with anyio.move_on_after(_LOCK_TIMEOUT_S) as deadline:
                while not _try_lock(lock.fileno()):  # noqa: ASYNC110 - another process holds it
                    await anyio.sleep(0.02)
            if deadline.cancelled_caught:
                raise InfrastructureFault(
                    f"another checkpoint of {str(self.workspace)!r} holds {lock.name!r}; wait for its end"
                )
            if not (self.directory / "HEAD").exists():
                make_private_dir(self.directory)
                write_clean_git_dir(self.directory)
                (self.directory / "workspace").write_bytes(os.fsencode(self.workspace) + b"\n")
            yield


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _blob(line: bytes) -> Blob:
    head, _, path = line.partition(b"\t")
    mode, _, name, size = head.split()
    return Blob(path=path, git_mode=int(mode, 8), id=name.decode(), size=int(size))


def _batches(blobs: Iterable[Blob]) -> Iterator[list[Blob]]:
    batch: list[Blob] = []
    size = 0
    for blob in blobs:
        if batch and size + blob.size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(blob)
        size += blob.size + 1000
    if batch:
        yield batch


def _split_contents(batch: list[Blob], answer: bytes) -> list[tuple[Blob, bytes]]:
    contents, position = [], 0
    for blob in batch:
        start = answer.index(b"\n", position) + 1
        contents.append((blob, answer[start : start + blob.size]))
        position = start + blob.size + 1
    return contents
