"""Opens and locks the directory that contains a loop's repository.

Nothing in the directory is ever written from inside a sandbox, since agents get copies. It is safe to run git on it.
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
"""The loop's branch in its own repository, and the branch of HEAD in each worktree."""
_ORIGIN_FILE = "ringfence-loop.json"
_LOCK_S = 120.0
_MAX_PART_CHARS = 100
# Keep a commit's objects in one pack: otherwise git starts a second process that unpacks it.
_OPTIONS = ("core.logAllRefUpdates=false", "fastimport.unpackLimit=1")


class RepositoryOrigin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's repository and the commit from which a loop's repository was created; never changed afterwards."""

    loop: str
    """The loop's id."""
    source: str
    """The top directory of the user's repository, percent-encoded: a path may contain any bytes."""
    inside: str = ""
    """The directory that the loop works in, relative to the top, percent-encoded; empty for the top."""
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
        """The top directory of the user's repository."""
        return Path(os.fsdecode(unquote_to_bytes(self.source)))

    @property
    def inside_path(self) -> bytes:
        """The directory that the loop works in, relative to the top."""
        return unquote_to_bytes(self.inside)


def encode_path(path: Path | bytes) -> str:
    """Percent-encode a path, which may contain any bytes, for JSON."""
    return quote_from_bytes(os.fsencode(path), safe="/")


@frozen
class RepositoryDirectory:
    """The directory that contains one loop's repository, its worktrees and their locks."""

    root: Path

    @property
    def git_dir(self) -> Path:
        """The loop's own bare repository."""
        return self.root / "loop.git"

    @property
    def git(self) -> Git:
        """Git on the repository, for reading. Objects are never removed, so that no lock is needed."""
        return Git(self.git_dir, options=_OPTIONS)

    def read_origin(self) -> RepositoryOrigin:
        """Read the origin of the repository.

        Raises:
            RepositoryRemoved: The directory contains no repository.
            RecordError: The file with the origin is damaged.
        """
        file = self.git_dir / _ORIGIN_FILE
        try:
            return msgspec.json.decode(file.read_bytes(), type=RepositoryOrigin)
        except FileNotFoundError as exc:
            raise RepositoryRemoved(
                f"{str(self.root)!r} no longer contains the loop's repository, as after `ringfence loop rm`; stories "
                "that passed are on the loop's branch, the others need a new `ringfence loop start`"
            ) from exc
        except (OSError, msgspec.MsgspecError) as exc:
            raise RecordError(
                f"the file {str(file)!r} with the origin of a loop's repository is damaged ({exc}); start a new loop"
            ) from exc

    @asynccontextmanager
    async def locked(self, what: str, *, work_tree: Path | None = None) -> AsyncIterator[Git]:
        """Hold the lock of the repository or of a worktree, and run git under it.

        Git processes inherit the lock: if their caller is killed, a git process that is still running holds the lock
        until it ends, so that two of them never write at once.

        Args:
            what: `loop` for the repository, or `worktree-` and a number.
            work_tree: The work tree for git, if any.

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
    """Encode any text as a component of a ref's name and of a file name. Different texts give different components.

    Raises:
        UsageError: The text is empty.
    """
    if not text:
        raise UsageError("a story or loop with an empty id cannot have a name in git")
    part = quote(text.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if re.search(r"^[.-]|\.$|\.\.|\.lock$", part):
        part = part.replace(".", "%2E")
        part = "%2D" + part[1:] if part.startswith("-") else part
    if len(part) > _MAX_PART_CHARS:
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        part = f"{part[: _MAX_PART_CHARS - 33].rstrip('%.')}+{digest}"
    return part


def write_origin(git_dir: Path, origin: RepositoryOrigin) -> None:
    """Write the origin into a new repository, before it is renamed to its final path."""
    (git_dir / _ORIGIN_FILE).write_bytes(msgspec.json.encode(origin))


def write_atomically(file: Path, data: bytes) -> None:
    """Replace a file atomically and synchronise it to disk; its directory is created if it does not exist.

    Only the process that works on the loop writes these files, one at a time.

    Raises:
        InfrastructureFault: The file cannot be written.
    """
    try:
        make_private_dir(file.parent)
        replace_file(file, data, is_synced=True, is_only_writer=True)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc)}") from exc
