"""Whatever stories do in whatever order: the loop's branch is the accepted work, each worktree what it was put at."""

import shutil
import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.cases import examples
from tests.loop.repository.conftest import TRAILERS, commit_everything, make, run_git

from ringfence.loop.repository import (
    Candidate,
    Change,
    Conflict,
    LoopRepository,
    Merged,
    NothingChanged,
    WorkRefused,
    Worktree,
)

Files = dict[bytes, bytes]
NUMBERS = st.integers(0, 1)
CONTENTS = st.sampled_from([None, b"1\n", b"2\n"])
PATHS = st.sampled_from([b"a", b"b", b"d/x", b"d/y", b"d", b"\xff\n"])


class Loop(RuleBasedStateMachine):
    """Two worktrees, and a model of them that knows commits as the files they hold."""

    @initialize()
    def begin(self) -> None:
        """A repository with two files."""
        self.root = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
        source = self.root / "project"
        source.mkdir()
        run_git(source, "init", "-q")
        (source / "a").write_bytes(b"0\n")
        (source / "d").mkdir()
        (source / "d/x").write_bytes(b"0\n")
        base = commit_everything(source)
        self.loop = anyio.run(lambda: make(source, self.root / "loop", loop="l"))
        self.trees: dict[int, Worktree] = {}
        self.files: dict[str, Files] = {base: {b"a": b"0\n", b"d/x": b"0\n"}}
        self.parent: dict[str, str] = {}
        self.base = base
        self.tip = base
        self.at: dict[int, str] = {}
        self.made: dict[int, list[str]] = {0: [], 1: []}
        self.time_s = 0

    def teardown(self) -> None:
        """Leave nothing."""
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    @rule(
        number=NUMBERS,
        paths=st.dictionaries(PATHS, st.sampled_from([None, b"1\n", b"2\n"]), max_size=3),
        data=st.data(),
    )
    def commit(self, number: int, paths: dict[bytes, bytes | None], data: st.DataObject) -> None:
        """A candidate on the branch's tip, or on an earlier candidate of the story."""
        base = data.draw(st.sampled_from([self.tip, *self.made[number]]))
        changes = [
            Change(path, None if what is None else 0o100644, what or b"") for path, what in paths.items()
        ]
        self.time_s += 1
        before = self.files[base]
        after = {path: what for path, what in {**before, **paths}.items() if what is not None}
        fits = not any(other.startswith(path + b"/") for path in after for other in after)
        fits = fits and not any(
            what is None and other.startswith(path + b"/") and paths.get(other, b"") is not None
            for path, what in paths.items()
            for other in before
        )
        try:
            sha = anyio.run(
                lambda: self.loop.commit(base, changes, message="t", trailers=TRAILERS, at_s=self.time_s)
            )
        except NothingChanged:
            assert after == before
        except WorkRefused:
            assert not fits
        else:
            assert fits
            assert after != before
            self.files[sha], self.parent[sha] = after, base
            self.made[number].append(sha)

    @rule(number=NUMBERS, data=st.data(), mess=st.booleans())
    def checkout(self, number: int, data: st.DataObject, mess: bool) -> None:
        """Put a worktree at anything that the loop has; what a killed process left in it is found by the next one."""
        sha = data.draw(st.sampled_from([self.base, self.tip, *self.made[number]]))
        if mess and number in self.trees:
            (self.trees[number].path / "left").mkdir(exist_ok=True)
            (self.trees[number].path / "left" / "x").write_text("")
            (self.trees[number].path / "a").unlink(missing_ok=True)
            self.loop = LoopRepository.open(self.loop.directory.root)
        self.trees[number] = anyio.run(self.loop.checkout, number, sha)
        self.at[number] = sha

    @rule(number=NUMBERS, data=st.data(), attempt=st.integers(1, 3))
    @precondition(lambda self: any(self.made.values()))
    def reject(self, number: int, data: st.DataObject, attempt: int) -> None:
        """Turn a candidate down."""
        if not self.made[number]:
            return
        sha = data.draw(st.sampled_from(self.made[number]))
        base = self.parent[sha]
        patch = anyio.run(lambda: self.loop.keep_rejected(base, sha, story=f"S{number}", attempt=attempt))
        assert patch is not None

    @rule(number=NUMBERS, data=st.data())
    @precondition(lambda self: any(self.made.values()))
    def merge(self, number: int, data: st.DataObject) -> None:
        """Merge a candidate; what was replayed is merged, too."""
        if not self.made[number]:
            return
        sha = data.draw(st.sampled_from(self.made[number]))
        found = anyio.run(self.loop.fast_forward_or_rebase, sha)
        if isinstance(found, Conflict):
            assert found.paths
            assert found.base == self.tip
            return
        if isinstance(found, Candidate):
            assert found.base == self.tip
            replayed = anyio.run(self.loop.fast_forward_or_rebase, found.tip)
            assert replayed == Merged(found.tip)
            tree = run_git(self.loop.directory.git_dir, "ls-tree", "-r", "--name-only", "-z", found.tip)
            self.files[found.tip] = self._read(found.tip, tree)
            changed = self._changes(sha)
            assert {path: self.files[found.tip].get(path) for path in changed} == changed
            self.tip = found.tip
        elif found.tip == sha and not self._is_on_branch(sha):
            self.tip = sha

    def _changes(self, sha: str) -> dict[bytes, bytes | None]:
        """What the commits from where a story left the branch to its end come to."""
        line = set(run_git(self.loop.directory.git_dir, "rev-list", "loop").split())
        at = sha
        while at in self.parent and self.parent[at] not in line:
            at = self.parent[at]
        before, after = self.files[self.parent.get(at, at)], self.files[sha]
        paths = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        return {path: after.get(path) for path in paths}

    def _is_on_branch(self, sha: str) -> bool:
        """Whether the branch had a commit before."""
        return sha in run_git(self.loop.directory.git_dir, "rev-list", self.tip).split()

    def _read(self, sha: str, listing: str) -> Files:
        names = [name for name in listing.encode("utf-8", "surrogateescape").split(b"\0") if name]
        return {
            name: run_git(
                self.loop.directory.git_dir, "cat-file", "blob", sha.encode() + b":" + name
            ).encode()
            + b"\n"
            for name in names
        }

    @invariant()
    def branch_is_the_accepted_work(self) -> None:
        """The branch is where the last accepted work left it."""
        if hasattr(self, "loop"):
            assert anyio.run(self.loop.tip) == self.tip

    @invariant()
    def worktrees_are_where_they_were_put(self) -> None:
        """Files and nothing else are those of the commit."""
        for number, sha in getattr(self, "at", {}).items():
            tree = self.trees[number]
            found = {
                bytes(path.relative_to(tree.path)): path.read_bytes()
                for path in tree.path.rglob("*")
                if path.is_file() and ".git" not in path.relative_to(tree.path).parts
            }
            assert found == self.files[sha]
            assert run_git(tree.path, "rev-parse", "HEAD") == sha


TestLoop = pytest.mark.slow(pytest.mark.timeout(400)(Loop.TestCase))
Loop.TestCase.settings = settings(max_examples=examples(12), stateful_step_count=10, deadline=None)
