"""Where a loop keeps its repository: one directory of the caller's own, with the locks on it.

Nothing in it is ever written from inside a sandbox: agents get copies. So git may be run on what lies here.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

import anyio
import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, RecordError, UsageError, next_step
from ringfence.filesystem import replace_file
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.loop.repository.refusal import RepositoryRemoved
from ringfence.sandbox.workspace.git.command import Git

BRANCH = "refs/heads/loop"
"""The loop's branch in its own repository, and the branch that each worktree shows."""
_RECORD = "ringfence-loop.json"
_LOCK_S = 120.0
_MOST_PART = 100
# A commit's objects come as one pack: otherwise a second git takes the pack apart again.
_OPTIONS = ("core.logAllRefUpdates=false", "fastimport.unpackLimit=1")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a loop's repository was made of; written with it, and never changed."""

    loop: str
    source: str
    """The top of the user's repository, percent-encoded: a path may be any bytes."""
    inside: str = ""
    """The directory in it that the loop works in, percent-encoded; empty for the top."""
    base: str
    """The commit that the loop starts from."""
    branch: str | None = None
    """The branch that HEAD was on, in full; None if it was on none, or another base was requested."""
    object_format: str = "sha1"
    name: str = ""
    email: str = ""
    """Not used: earlier versions signed commits off with the user's name and address."""

    @property
    def source_path(self) -> Path:
        """The top of the user's repository."""
        return Path(os.fsdecode(unquote_to_bytes(self.source)))

    @property
    def inside_path(self) -> bytes:
        """The directory that the loop works in, relative to the top."""
        return unquote_to_bytes(self.inside)


def encode_path(path: Path | bytes) -> str:
    """Any path as text that JSON can hold."""
    return quote_from_bytes(os.fsencode(path), safe="/")


@frozen
class Place:
    """The directory of one loop."""

    root: Path

    @property
    def git_dir(self) -> Path:
        """The loop's own bare repository."""
        return self.root / "loop.git"

    @property
    def git(self) -> Git:
        """Git on the repository, to read: objects are never removed, so no lock is needed."""
        return Git(self.git_dir, options=_OPTIONS)

    def load(self) -> Record:
        """What the repository was made of.

        Raises:
            RepositoryRemoved: There is none here.
            RecordError: Its record is damaged.
        """
        file = self.git_dir / _RECORD
        try:
            return msgspec.json.decode(file.read_bytes(), type=Record)
        except FileNotFoundError as exc:
            raise RepositoryRemoved(
                f"there is no loop's repository in {str(self.root)!r} any more, as after `ringfence loop rm`; "
                "what passed is on the loop's branch, the rest takes another `ringfence loop start`"
            ) from exc
        except (OSError, msgspec.MsgspecError) as exc:
            raise RecordError(
                f"the record {str(file)!r} of a loop is damaged ({exc}); start the loop anew"
            ) from exc

    @asynccontextmanager
    async def locked(self, what: str, *, work_tree: Path | None = None) -> AsyncIterator[Git]:
        """Hold a part of the place alone, and run git under that lock.

        The lock is inherited by each git: after its caller was killed, a git goes on for a moment and holds the lock
        until it has ended, so two of them never write at once.

        Args:
            what: `loop` for the repository, or `worktree-` and a number.
            work_tree: The directory of files that git works on, if any.

        Raises:
            InfrastructureFault: Another process holds it for two minutes.
        """
        folder = make_private_dir(self.root / "locks")
        lock = os.open(folder / what, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with anyio.move_on_after(_LOCK_S) as clock:
                while not try_lock(lock, fcntl.LOCK_EX, what=f"{str(folder / what)!r}"):  # noqa: ASYNC110 - as above
                    await anyio.sleep(0.01)
            if clock.cancelled_caught:
                raise InfrastructureFault(
                    f"another process works on the loop's {what} in {str(self.root)!r}; wait for its end"
                )
            yield Git(self.git_dir, work_tree=work_tree, options=_OPTIONS, inherited=(lock,))
        finally:
            os.close(lock)


def ref_part(text: str) -> str:
    """Any text as a part of a ref's name and of a file's, two texts never as one.

    Raises:
        UsageError: It is empty.
    """
    if not text:
        raise UsageError("a story or loop without an id cannot be named in git")
    part = quote(text.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if re.search(r"^[.-]|\.$|\.\.|\.lock$", part):
        part = part.replace(".", "%2E")
        part = "%2D" + part[1:] if part.startswith("-") else part
    if len(part) > _MOST_PART:
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        part = f"{part[: _MOST_PART - 33].rstrip('%.')}+{digest}"
    return part


def write_record(git_dir: Path, record: Record) -> None:
    """Write what a repository is made of, while it is not in its place yet."""
    (git_dir / _RECORD).write_bytes(msgspec.json.encode(record))


def write_whole(file: Path, data: bytes) -> None:
    """Write a file in one step and onto the disk, with its directory where that is missing; see `replace_file`.

    Only the process that works on the loop writes there, one file at a time.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    try:
        make_private_dir(file.parent)
        replace_file(file, data, is_synced=True, is_only_writer=True)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc)}") from exc
