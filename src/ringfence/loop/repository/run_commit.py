"""Commits the changes of one run on the user's branch, as the user and without running anything that a workspace names.

The index stays locked, as during `git commit`, from the first check to the end. What can be refused is refused before a
file is written, and the commit exists before its branch moves to it. Only the run's own changes are in it: what else
differs from HEAD stays as it is. Hooks, filters and signing programs of the repository are not run, since they may
run what the agent wrote.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.loop.repository.change import Change, changes_between, check_changes, check_links
from ringfence.loop.repository.commit import list_files, make_commit
from ringfence.loop.repository.delivery import set_ref, why_converted, why_not_mergeable
from ringfence.loop.repository.inspection import file_options
from ringfence.loop.repository.refusal import list_paths
from ringfence.loop.repository.source import Source, SourceView, find_source, open_source
from ringfence.sandbox.workspace.git.command import USERS, Git, run_git
from ringfence.sandbox.workspace.git.commits import adopt_packs, unsafe_places
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT
from ringfence.sandbox.workspace.record import WorkRecord, open_store
from ringfence.sandbox.workspace.snapshot.index import read_index

_GIT_S = 120.0
_MAX_MESSAGE = 64 * 1024
_LOCK = "index.lock"
_USERS_VARIABLES = frozenset(
    {
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
        *(f"GIT_{role}_{key}" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")),
    }
)
"""Of git's own variables, those that say who the user is."""


class CommitRefused(RingfenceError):
    """A run's changes are not committed; nothing was written."""


@dataclass
class RunCommit:
    """A commit that is made, and not on the branch yet."""

    source: Source
    view: SourceView
    head: str
    changes: Sequence[Change]
    identity: Mapping[str, str]
    lock: int
    id: str = ""
    tree: str = ""

    @property
    def ref(self) -> str:
        """The branch that HEAD is on, or `HEAD`."""
        return self.view.branch or "HEAD"

    async def write(self, message: str) -> None:
        """Create the commit with its final message; may be called again with another."""
        made = await replace(self.view.git, environment=dict(self.identity)).run(
            *("commit-tree", "--no-gpg-sign", self.tree, "-p", self.head), stdin=_check_message(message)
        )
        self.id = made.stdout.decode().strip()

    async def publish(self) -> None:
        """Add the commit to the user's repository, and move branch and index to it together.

        Raises:
            DeliveryRefused: The branch was moved meanwhile.
            InfrastructureFault: Objects or index cannot be written.
        """
        with anyio.CancelScope(shield=True):
            index = await self._new_index()
            await add_objects(self.source, self.view.git, [self.id], known=[self.head])
            await self.source.actor.call(lambda: _write_all(self.lock, index))
            await set_ref(self.source, self.ref, self.id, self.head, reason=f"ringfence apply {self.id[:12]}")
            folder = self.source.layout.directory
            await self.source.actor.call(lambda: (folder / _LOCK).replace(folder / "index"))

    async def _new_index(self) -> bytes:
        """Return the user's index with the run's files as they are in the commit."""
        git = replace(
            self.view.git, work_tree=self.source.root, options=("core.bare=false", *file_options(self.source))
        )
        entries = {blob.path: blob for blob in await list_files(git, self.id)}
        none = "0" * len(self.head)
        lines = []
        for change in self.changes:
            blob = entries.get(change.path)
            head = f"{blob.git_mode:o} {blob.id}" if blob is not None else f"0 {none}"
            lines.append(head.encode() + b"\t" + change.path + b"\0")
        await git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        await git.run("update-index", "-q", "--refresh", accept=(0, 1))
        return await self.source.actor.call((git.directory / "index").read_bytes)


@asynccontextmanager
async def prepare_commit(record: WorkRecord, state: Path, message: str) -> AsyncIterator[RunCommit]:
    """Make the commit of a run's changes, under a lock on the index, without writing to the user's repository.

    Args:
        record: The run, which has ended.
        state: The state directory.
        message: The commit's message.

    Raises:
        CommitRefused: The repository is in no state for it, or files of the run differ from HEAD by other changes.
        RepositoryRefused: The workspace is in no repository, or in one that is not opened.
        WorkRefused: Some of the changes may not be committed.
        NothingChanged: HEAD has them already.
    """
    source = find_source(Path(record.workspace))
    if source.is_bare or source.object_format != "sha1":
        raise CommitRefused(f"{str(source.root)!r} is bare or of git's format SHA-256; commit by hand")
    why = await source.actor.call(lambda: why_not_mergeable(source))
    if why is not None:
        raise CommitRefused(
            f"nothing is committed in {str(source.root)!r}: {why}; finish that, or commit by hand"
        )
    async with _locked_index(source) as lock, open_source(source) as view:
        head = view.refs.head_commit()
        if head is None:
            raise CommitRefused(f"{str(source.root)!r} has no commit yet; commit your files first")
        await _check_places(source, view)
        await _check_index(source, view, head)
        changes = await _changes(record, state, source, view.git, head)
        commit = RunCommit(source, view, head, changes, await _identity(source), lock)
        made = await make_commit(view.git, head, changes, message=b"run\n", at_s=0)
        commit.tree = (await view.git.run("rev-parse", f"{made}^{{tree}}")).stdout.decode().strip()
        await commit.write(message)
        yield commit


async def add_objects(source: Source, git: Git, tips: Sequence[str], *, known: Sequence[str]) -> None:
    """Copy objects that ringfence made to the user's repository.

    Args:
        source: The user's repository.
        git: The temporary git directory that has the objects.
        tips: Commits that lead to them.
        known: Commits that the user's repository has.

    Raises:
        InfrastructureFault: They cannot be written.
    """
    wanted = "".join(f"{tip}\n" for tip in tips) + "".join(f"^{commit}\n" for commit in known)
    await git.run("pack-objects", "--revs", "--local", "-q", "objects/pack/pack", stdin=wanted.encode())
    try:
        await source.actor.call(lambda: adopt_packs(git, source.layout))
    except OSError as exc:
        raise InfrastructureFault(
            f"the repository {str(source.layout.common)!r} cannot take objects: {exc.strerror}; check its permissions"
        ) from exc


@asynccontextmanager
async def _locked_index(source: Source) -> AsyncIterator[int]:
    """Lock the user's index as git does; the lock is removed unless it became the index."""
    path = source.layout.directory / _LOCK
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = await source.actor.call(lambda: os.open(path, flags, 0o644))
    except FileExistsError as exc:
        raise CommitRefused(
            f"another git works in {str(source.root)!r} ({str(path)!r} exists); wait for its end, or remove the file if "
            "there is none"
        ) from exc
    except OSError as exc:
        raise CommitRefused(
            f"{str(path)!r} cannot be created: {exc.strerror}; check its permissions"
        ) from exc
    ours = os.fstat(lock).st_ino
    try:
        yield lock
    finally:
        os.close(lock)

        def remove() -> None:
            with suppress(FileNotFoundError):
                if os.lstat(path).st_ino == ours:
                    path.unlink()

        with anyio.CancelScope(shield=True):
            await source.actor.call(remove)


async def _check_places(source: Source, view: SourceView) -> None:
    parts = (view.branch or "refs/heads/x").split("/")
    folders = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    why = await source.actor.call(lambda: unsafe_places(source.layout, folders))
    if why is None and view.branch is not None and view.branch in view.refs.symbolic:
        why = f"{view.branch!r} is a name for another ref"
    if why is not None:
        raise CommitRefused(f"nothing is committed in {str(source.root)!r}: {why}")


async def _check_index(source: Source, view: SourceView, head: str) -> None:
    """Copy the index to the view, and check that nothing is staged and that git converts no file."""
    index = await source.actor.call(lambda: read_index(source.root, room_bytes=INDEX_LIMIT))
    if index is None or index.is_left_out or index.shared_name:
        raise CommitRefused(
            f"the index of {str(source.root)!r} is absent, split or too large; commit by hand"
        )
    path, data = view.git.directory / "index", index.data
    await source.actor.call(lambda: path.write_bytes(data))
    staged = await view.git.run("diff-index", "--cached", "--name-only", "-z", head)
    if staged.stdout:
        names = [os.fsdecode(name) for name in staged.stdout.split(b"\0") if name]
        raise CommitRefused(
            f"changes are staged in {str(source.root)!r} ({list_paths(names)}); commit them, or unstage them with "
            "`git restore --staged .`"
        )
    why = await why_converted(view.git, head)
    if why is not None:
        raise CommitRefused(f"nothing is committed, for {why}; `ringfence apply`, then commit by hand")


async def _changes(record: WorkRecord, state: Path, source: Source, git: Git, head: str) -> list[Change]:
    """Return the run's changes, relative to the top; refuse those of files that HEAD has with other contents."""
    store = open_store(record, state)
    assert record.after is not None
    prefix = source.inside + b"/" if source.inside else b""
    found = await changes_between(store, record.before, record.after)
    changes = [replace(change, path=prefix + change.path) for change in found]
    check_changes(changes)
    check_links(changes)
    committed = {blob.path: (blob.git_mode, blob.id) for blob in await list_files(git, head)}
    before = {prefix + blob.path: (blob.git_mode, blob.id) for blob in await store.blobs(record.before)}
    others = [change.path for change in changes if committed.get(change.path) != before.get(change.path)]
    if others:
        raise CommitRefused(
            f"the run changed files that had changes of yours, which are in no commit: "
            f"{list_paths([os.fsdecode(path) for path in others])}; `ringfence apply`, then commit by hand"
        )
    return changes


async def _identity(source: Source) -> dict[str, str]:
    """Return author and committer by the user's own settings, as git finds them for this repository."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _USERS_VARIABLES
    }
    env |= {"GIT_DIR": str(source.layout.directory), "LC_ALL": "C", "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": "user.useConfigOnly", "GIT_CONFIG_VALUE_0": "true"}
    found: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        said = await run_git(
            ["var", f"GIT_{role}_IDENT"],
            cwd=source.root,
            env=env,
            actor=source.actor,
            timeout_s=_GIT_S,
            bounds=USERS,
        )
        name, _, rest = said.stdout.decode("utf-8", "replace").strip().rpartition(" <")
        email, _, _ = rest.partition(">")
        if not said.ok or not name or not email:
            raise CommitRefused(
                "git does not know who you are; set your name and address with `git config user.name` and `git config "
                "user.email`"
            )
        found |= {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": email}
    return found


def _check_message(message: str) -> bytes:
    data = message.strip().encode("utf-8", "surrogateescape") + b"\n"
    if len(data) < 2 or b"\0" in data or len(data) > _MAX_MESSAGE:
        raise UsageError(
            f"the commit message is empty, has a NUL, or more than {_MAX_MESSAGE} bytes; give another"
        )
    return data


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)
