"""A pack that comes out of a sandbox is checked as hostile."""

import hashlib
import os
import shlex
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.sandbox.workspace.git.bombs import delta_bomb

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.commits import import_pack, unsafe_to_write
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@pytest.fixture
def users(repository: Path) -> tuple[GitLayout, Refs]:
    """The user's repository, and its refs before the run."""
    layout = find_git(repository)
    assert layout is not None
    return layout, read_refs(layout)


@pytest.fixture
def inside(repository: Path, ground: Path, git) -> Path:
    """A copy of the repository that a test can change in any way."""
    git(ground, "clone", "-q", str(repository), "inside")
    return ground / "inside"


def packed(git, inside: Path, *wanted: str) -> bytes:
    """A thin pack of that copy, without the objects that the user's repository has."""
    (inside.parent / "wanted").write_text("".join(f"{name}\n" for name in wanted))
    git(inside, "-c", "alias.p=!git pack-objects --revs --thin --stdout -q <../wanted >../out.pack", "p")
    return (inside.parent / "out.pack").read_bytes()


def private_of(layout: GitLayout, refs: Refs) -> PrivateGit:
    """The private git directory of the user's repository, with the fields that an import uses."""
    return PrivateGit((), layout, refs, Path("/nonexistent"), Path("/nonexistent"))


async def take_over(
    data: bytes, users: tuple[GitLayout, Refs], *, actor: Actor | None = None, **tips: str
) -> tuple[dict[str, str], list[str]]:
    """Import a pack as run `r`."""
    run_dir = users[0].workspace.parent / "r"
    run_dir.mkdir()
    out = await import_pack(
        data,
        {f"refs/heads/{name}": tip for name, tip in tips.items()},
        private_of(*users),
        run_dir=run_dir,
        actor=actor or Actor.current(),
    )
    return out.refs, list(out.notes)


@pytest.fixture
def new(inside: Path, git) -> str:
    """A commit that the copy has and the user does not."""
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    return str(git(inside, "rev-parse", "main"))


def snapshot(repository: Path) -> list[str]:
    """The path of each file in the user's git directory."""
    return sorted(str(path) for path in (repository / ".git").rglob("*"))


async def test_no_hook_of_the_repository_runs(users, inside: Path, new: str, repository: Path, git):
    """Importing commits runs no hook of the user's repository, which somebody else may have written."""
    marker = repository.parent / "ran"
    hook = repository / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(marker))}\n")
    hook.chmod(0o755)
    refs, _notes = await take_over(packed(git, inside, "main", "^origin/main"), users, main=new)
    assert list(refs) == ["refs/ringfence/r/main"]
    assert not marker.exists()


async def test_a_replaced_repository_is_not_written_to(users, inside: Path, new: str, repository: Path, git):
    """If `.git` is another directory at the end of the run than at its start, nothing is written to it."""
    pack = packed(git, inside, "main", "^origin/main")
    (repository / ".git").rename(repository / "was-git")
    (repository / ".git").symlink_to(inside / ".git")
    assert "is not the repository any more" in (unsafe_to_write(users[0], "r") or "")
    with pytest.raises(InfrastructureFault, match="is not the repository any more"):
        await take_over(pack, users, main=new)


@pytest.mark.parametrize("damage", slow_after(1, ["truncated", "flipped", "no-pack", "empty"]))
async def test_damaged_pack_changes_nothing(damage: str, users, inside: Path, repository: Path, git):
    """A damaged pack is refused, and none of it is added to the user's objects."""
    (inside / "big").write_bytes(bytes(range(256)) * 8)
    git(inside, "add", "-A")
    git(inside, "commit", "-qm", "new")
    data = packed(git, inside, "main", "^origin/main")
    data = {
        "truncated": data[:-30],
        "flipped": data[:-40] + bytes([data[-40] ^ 255]) + data[-39:],
        "no-pack": b"x" * 1000,
        "empty": b"",
    }[damage]
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault):
        await take_over(data, users, main=git(inside, "rev-parse", "main"))
    assert snapshot(repository) == before


async def test_malformed_object_is_refused(users, inside: Path, repository: Path, git):
    """A tree that holds `.git`, with which a checkout would make hooks, does not pass fsck."""
    blob = git(inside, "hash-object", "-w", "--stdin", stdin="x")
    raw = b"40000 .git\0" + bytes.fromhex(git(inside, "mktree", stdin=f"100644 blob {blob}\tconfig\n"))
    data = b"tree %d\0" % len(raw) + raw
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    path = inside / ".git/objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(data))
    tip = git(inside, "commit-tree", name, "-p", "HEAD", "-m", "evil")
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault, match="hasDotgit"):
        await take_over(packed(git, inside, tip, "^origin/main"), users, evil=tip)
    assert snapshot(repository) == before


async def test_huge_object_is_refused(users, repository: Path):
    """A delta of a few bytes that unpacks to 300 MiB is refused before anything of the pack is kept."""
    pack, commit = delta_bomb(300)
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault, match="bytes unpacked"):
        await take_over(pack, users, main=commit)
    assert snapshot(repository) == before


@pytest.mark.parametrize("left_out", ["^main~1", "^main^{tree}"], ids=["commit", "tree"])
async def test_missing_history_is_refused(left_out: str, users, inside: Path, repository: Path, git):
    """A pack that needs objects that the user does not have is refused."""
    (inside / "hidden").write_text("hidden\n")
    git(inside, "add", "-A")
    for message in ("hidden", "shown"):
        git(inside, "commit", "-q", "--allow-empty", "-m", message)
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault):
        await take_over(packed(git, inside, "main", left_out), users, main=git(inside, "rev-parse", "main"))
    assert snapshot(repository) == before


async def test_branch_that_is_no_commit_is_left_out(users, inside: Path, new: str, git):
    """A branch that points at a blob, a tag or an absent object is left out, with a note."""
    git(inside, "tag", "-am", "tag", "tag")
    tips = {
        "main": new,
        "blob": git(inside, "rev-parse", "main:a.txt"),
        "tag": git(inside, "rev-parse", "tag"),
        "absent": "7" * 40,
    }
    refs, notes = await take_over(packed(git, inside, "tag", "^origin/main"), users, **tips)
    assert refs == {"refs/ringfence/r/main": new}
    assert [note.split("'")[1] for note in notes] == [
        f"refs/heads/{name}" for name in ("blob", "tag", "absent")
    ]


async def test_a_branch_at_an_existing_commit_is_left_out(
    users, inside: Path, new: str, repository: Path, git
):
    """A branch that the agent moved back to an earlier commit of the user's makes no ref."""
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    old = git(repository, "rev-parse", "HEAD~1")
    layout = find_git(repository)
    assert layout is not None
    refs, notes = await take_over(
        packed(git, inside, "main", "^origin/main"), (layout, read_refs(layout)), main=new, back=old
    )
    assert (refs, notes) == ({"refs/ringfence/r/main": new}, [])


@pytest.mark.parametrize("parents", [[], ["-p", "origin/main"]], ids=["unrelated", "conflict"])
async def test_a_commit_that_conflicts_is_examined(
    parents: list[str], users, inside: Path, repository: Path, commit_all, git
):
    """Each file of a commit is found even if a merge of it conflicts, or if it shares no history with the user's."""
    for place, text in ((repository, "user"), (inside, "agent")):
        (place / ".envrc").write_text(text)
        (place / text).touch()
        commit_all(place)
    tip = git(inside, "commit-tree", "main^{tree}", *parents, "-m", "agent")
    layout = find_git(repository)
    assert layout is not None
    out = await import_pack(
        packed(git, inside, tip, "^origin/main"),
        {"refs/heads/main": tip},
        private_of(layout, read_refs(layout)),
        run_dir=repository.parent / "r",
        actor=Actor.current(),
    )
    assert {file.path for file in out.committed} == {".envrc", "agent"}


async def test_patterns_apply_to_earlier_commits_of_a_submodule(
    users, inside: Path, repository: Path, commit_all, git
):
    """Patterns and reported paths are relative to the workspace; the table of files applies in each repository."""
    for name in ("fixtures", ".husky"):
        (inside / name).mkdir()
        (inside / name / "x").touch()
    commit_all(inside)
    git(inside, "rm", "-rq", "fixtures", ".husky")
    git(inside, "commit", "-qm", "removed")
    tip = git(inside, "rev-parse", "main")
    out = await import_pack(
        packed(git, inside, "main", "^origin/main"),
        {"refs/heads/main": tip},
        replace(private_of(*users), place="lib"),
        run_dir=repository.parent / "r",
        actor=Actor.current(),
        protect=["/lib/fixtures/"],
    )
    assert [file.path for file in out.committed if file.is_earlier] == ["lib/.husky/x", "lib/fixtures/x"]


@pytest.mark.slow
async def test_repository_that_cannot_be_written(
    users, inside: Path, new: str, repository: Path, ground: Path, git
):
    """Commits that cannot be written to the repository are kept beside the record; the note says how to fetch them."""
    data = packed(git, inside, "main", "^origin/main")
    git(ground, "clone", "-q", str(repository), "mine")
    (repository / ".git" / "objects" / "pack").chmod(0o555)
    before = snapshot(repository)
    stranger = Actor(12_345, 12_345) if os.geteuid() == 0 else Actor.current()
    refs, notes = await take_over(data, users, actor=stranger, main=new)
    assert (refs, snapshot(repository)) == ({}, before)
    assert "Permission denied" in notes[0]
    fetch = shlex.split(notes[1].split("`")[1])
    git(ground / "mine", *fetch[1:])
    assert git(ground / "mine", "log", "-1", "--format=%s", "refs/ringfence/r/main") == "new"


async def test_ref_that_cannot_be_made(users, inside: Path, new: str, repository: Path, git):
    """A commit whose ref cannot be made in the repository is kept beside the record, too."""
    git(repository, "update-ref", "refs/ringfence/r/main/below", "HEAD")
    refs, notes = await take_over(packed(git, inside, "main", "^origin/main"), users, main=new)
    assert refs == {}
    assert "could not be made" in notes[0]
    assert (repository.parent / "r" / "commits.bundle").stat().st_size > 0
