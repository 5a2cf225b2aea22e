"""What git says of a workspace: the files it tracks or would offer to add, and what the rules ignore.

Git works on git directories of ours that hold nothing but a copy of an index. Repositories within the
workspace are listed one by one, so that nothing can hide in one.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached, write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import find_git, read_small
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.ignore import ROOM_FOR_RULES_BYTES, Rules, left_out_note, read_rules
from ringfence.sandbox.workspace.snapshot.index_copy import copy_index
from ringfence.sandbox.workspace.snapshot.memo import mark_of
from ringfence.sandbox.workspace.snapshot.remembered import Remembered
from ringfence.sandbox.workspace.snapshot.scan import is_settled
from ringfence.sandbox.workspace.snapshot.survey import MAX_NAMES_BYTES
from ringfence.sandbox.workspace.tree import Tree

_MAX_REPOSITORIES = 1000
_ROOM_FOR_INDEXES_BYTES = 256 * 1024**2
"""Of the workspace's own, which has about 100 bytes for a file."""
_ROOM_WITHIN_BYTES = 64 * 1024**2
"""Of those of all repositories within together: copies, in a directory that may lie in memory."""
_TIMEOUT_S = 60.0
_NO_INDEX = b"none"
"""What tells that there is no index from any index."""


@dataclass
class _Repository:
    git: Git
    place: bytes
    """Its path in the workspace, ending in a slash; empty for the workspace itself."""
    gitlinks: bool
    excludes: bytes
    is_split: bool
    """Whether its index shares entries with another file."""


@dataclass
class GitLister:
    """Asks git about one directory tree, in which nobody is working.

    Args:
        root: The workspace.
        actor: As whom git runs.
        excludes: The user's own ignore rules, that hold everywhere.
        scratch: An empty directory of the actor's.
    """

    root: Path
    actor: Actor
    excludes: bytes
    scratch: Path
    paths: set[bytes] = field(default_factory=set)
    """Files that git tracks or would offer to add; complete after `list_all`."""
    beyond: frozenset[bytes] = frozenset()
    """Repositories that were not listed."""
    notes: list[str] = field(default_factory=list)
    _repositories: list[_Repository] = field(default_factory=list)
    _top: _Repository | None = None
    _room_for_rules: int = ROOM_FOR_RULES_BYTES
    _room_within: int = _ROOM_WITHIN_BYTES
    _excludes_left_out: int = 0
    _seen: bytes = b""

    async def list_all(self) -> None:
        """List the files.

        Raises:
            InfrastructureFault: Git does not answer in time, or with more than is kept.
        """
        pending = [b""]
        while pending and len(self._repositories) < _MAX_REPOSITORIES:
            place = pending.pop()
            repository = await self._opened(place)
            self._repositories.append(repository)
            for path in await self._list_one(repository):
                if path.endswith(b"/"):
                    pending.append(place + path)
                else:
                    self.paths.add(place + path)
        if pending:
            self.beyond = frozenset(pending)
            self.notes.append(f"only {_MAX_REPOSITORIES} git repositories in the workspace are covered")

    async def tracked(self) -> Rules:
        """List what the index alone says, in `paths`; git does not enter the tree. Return the rules beside the tree's.

        Raises:
            InfrastructureFault: Git does not answer.
        """
        repository = await self._opened(b"")
        git = await self._without_tree(repository)
        told = await git.run("ls-files", "-z", "-c", accept=(0, 128), output_limit_bytes=MAX_NAMES_BYTES)
        self.paths = set(told.stdout.split(b"\0")) - {b""}
        return Rules(excludes={b"": repository.excludes})

    async def asked(self, remembered: Remembered, began_ns: int) -> bytes:
        """Digest of all that decides what `list_all` and `ignored` say, other than the tree; empty if there is none.

        Of the index all but the status of files, which a mere `git status` renews.

        Args:
            remembered: Nothing is read of an index that is as it was when git told what is in it. Is brought up to date.
            began_ns: When the look began that this is part of.
        """
        self._seen, excludes = await self.actor.call(lambda: self._look_at_index(began_ns))
        if self._seen and self._seen == remembered.index:
            return _digest(self._with_own(excludes), b"", remembered.indexed)
        repository = await self._opened(b"")
        git = await self._without_tree(repository)
        try:
            index = await git.run("ls-files", "-z", "-s", "-v")
        except InfrastructureFault:
            return b""
        indexed = _digest(index.stdout, index.stderr)
        is_whole = not repository.is_split and not self.notes
        remembered.index, remembered.indexed = self._seen if is_whole else b"", indexed
        return _digest(repository.excludes, "\n".join(self.notes).encode(), indexed)

    async def is_still_so(self, began_ns: int) -> bool:
        """Whether what `asked` went by is what git was told of since."""
        seen, _ = await self.actor.call(lambda: self._look_at_index(began_ns))
        return seen == self._seen

    def _look_at_index(self, began_ns: int) -> tuple[bytes, bytes]:
        """What tells the index from any other, empty if nothing does for certain; and the rules beside it."""
        layout = find_git(self.root)
        if layout is None:
            return _NO_INDEX, b""
        excludes = read_small(layout.common, b"info/exclude") or b""
        try:
            status = (layout.directory / "index").lstat()
        except FileNotFoundError:
            return _NO_INDEX, excludes
        except OSError:
            return b"", excludes
        is_certain = stat.S_ISREG(status.st_mode) and is_settled(status.st_ctime_ns, began_ns)
        return (b"%d %r" % (status.st_dev, mark_of(status)) if is_certain else b""), excludes

    async def _opened(self, place: bytes) -> _Repository:
        """A repository of the workspace; the top one is opened once."""
        if place or self._top is None:
            repository = await self.actor.call(lambda: self._open(place))
            self._top = self._top or repository
            return repository
        return self._top

    async def _without_tree(self, repository: _Repository) -> Git:
        nothing = repository.git.directory / "nothing"
        await self.actor.call(lambda: nothing.mkdir(exist_ok=True))
        return replace(repository.git, work_tree=nothing)

    def _open(self, place: bytes) -> _Repository:
        work_tree = self.root / os.fsdecode(place.rstrip(b"/"))
        directory = self.scratch / str(len(self._repositories))
        write_clean_git_dir(directory)
        room = self._room_within if place else _ROOM_FOR_INDEXES_BYTES
        copied = copy_index(work_tree, directory, room_bytes=room)
        if place:
            self._room_within -= copied.size
        if copied.is_left_out:
            self.notes.append(f"the git index of {os.fsdecode(place) or '.'!r} is too large to be used")
        excludes, gitlinks = self._with_room(copied.excludes), copied.gitlinks
        (directory / "info" / "exclude").write_bytes(excludes)
        git = Git(directory, work_tree, self.actor)
        return _Repository(git, place, gitlinks, excludes, copied.is_split)

    def _with_room(self, local: bytes) -> bytes:
        """A repository's rules that are not in `.gitignore` files, as far as there is room."""
        excludes = self._with_own(local)
        # The workspace's own come first, and always hold.
        if self._repositories and len(excludes) > self._room_for_rules:
            self._excludes_left_out += 1
            return b""
        self._room_for_rules -= len(excludes)
        return excludes

    def _with_own(self, local: bytes) -> bytes:
        return self.excludes.rstrip(b"\n") + b"\n" + local

    async def _list_one(self, repository: _Repository) -> list[bytes]:
        try:
            paths = await self._ask(repository)
        except InfrastructureFault as exc:
            if isinstance(exc, GitBoundReached) and exc.bound != "memory":
                raise
            # An index we cannot use (sparse, damaged, of a newer git): the files are found without it.
            directory = repository.git.directory
            await self.actor.call(lambda: (directory / "index").unlink(missing_ok=True))
            repository.gitlinks = False
            paths = await self._ask(repository)
            name = os.fsdecode(repository.place) or "."
            self.notes.append(f"the git index of {name!r} was not used: files that are ignored are left out")
        return paths + (await self._submodules(repository) if repository.gitlinks else [])

    async def _ask(self, repository: _Repository) -> list[bytes]:
        command = ("ls-files", "-z", "-c", "-o", "--exclude-standard")
        result = await repository.git.run(*command, timeout_s=_TIMEOUT_S, output_limit_bytes=MAX_NAMES_BYTES)
        self.notes += [line[:300] for line in result.stderr.decode("utf-8", "replace").splitlines()[:20]]
        return [path for path in result.stdout.split(b"\0") if path]

    async def _submodules(self, repository: _Repository) -> list[bytes]:
        # ls-files names a submodule but does not enter it, whatever is in its directory.
        staged = (await repository.git.run("ls-files", "-z", "-s", timeout_s=_TIMEOUT_S)).stdout.split(b"\0")
        links = [entry.partition(b"\t")[2] for entry in staged if entry.startswith(b"160000 ")]

        def real() -> list[bytes]:
            with Tree(self.root) as tree:
                found = [(path, tree.lstat(repository.place + path)) for path in links]
            return [path + b"/" for path, status in found if status and stat.S_ISDIR(status.st_mode)]

        return await self.actor.call(real)

    async def ignored(self) -> frozenset[bytes]:
        """What is ignored now: files, and directories as a whole, which end in a slash.

        Whatever becomes of the rules, none of it is anything that a run added.

        Raises:
            InfrastructureFault: As `list_all`.
        """
        found: set[bytes] = set(self.beyond)
        for repository in self._repositories:
            command = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard")
            result = await repository.git.run(
                *command, timeout_s=_TIMEOUT_S, output_limit_bytes=MAX_NAMES_BYTES
            )
            paths = {path for path in result.stdout.split(b"\0") if path}
            # Named, too, are empty directories and those with nothing but ignored files: not ignored as a whole.
            # Asked without the slash: with it, `logs/*` is said to match `logs/`.
            folders = {path[:-1] for path in paths if path.endswith(b"/")}
            paths = {path for path in paths if not path.endswith(b"/")}
            paths |= {path + b"/" for path in await self._told_ignored(repository, folders)}
            found.update(repository.place + path for path in paths)
        return frozenset(found)

    async def _told_ignored(self, repository: _Repository, folders: set[bytes]) -> set[bytes]:
        if not folders:
            return set()
        # A dot first: what begins with a colon has a meaning of its own to git.
        asked = b"\0".join(b"./" + folder for folder in sorted(folders))
        told = await repository.git.run("check-ignore", "-z", "--stdin", stdin=asked, accept=(0, 1, 128))
        return {path[2:] for path in told.stdout.split(b"\0")} & folders

    async def rules(self, present: frozenset[bytes]) -> Rules:
        """The rules in force: `.gitignore` files that are covered, and those in directories that are.

        Args:
            present: Every `.gitignore` there is.

        Raises:
            InfrastructureFault: As `list_all`.
        """
        in_force = present & self.paths
        rest = present - self.paths
        excludes = {}
        for repository in sorted(self._repositories, key=lambda repository: -len(repository.place)):
            place = repository.place
            excludes[place] = repository.excludes
            mine = {path for path in rest if path.startswith(place)}
            rest -= mine
            folders = {path[len(place) :].rpartition(b"/")[0] for path in mine} - {b""}
            ignored = await self._told_ignored(repository, folders)
            in_force |= {path for path in mine if path[len(place) :].rpartition(b"/")[0] not in ignored}

        return Rules(files=await self.read_rules(in_force), excludes=excludes)

    async def read_rules(self, paths: Iterable[bytes]) -> dict[bytes, bytes]:
        """Contents of `.gitignore` files, as far as there is room; the rest is noted."""

        def read() -> tuple[dict[bytes, bytes], int]:
            with Tree(self.root) as tree:
                return read_rules(tree, paths, room_bytes=max(0, self._room_for_rules))

        files, left_out = await self.actor.call(read)
        self.notes += left_out_note(left_out + self._excludes_left_out)
        return files


def _digest(*parts: bytes) -> bytes:
    """One digest of several parts."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
