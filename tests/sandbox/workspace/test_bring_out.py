"""What comes out of a sandbox as a bundle is checked as if an enemy had made it."""

import hashlib
import os
import shlex
import zlib
from pathlib import Path

import pytest
from tests.cases import slow_after

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.bring_out import import_bundle, unsafe_to_write
from ringfence.sandbox.workspace.git.bundle import MAX_REFS, parse_bundle
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@pytest.fixture
def users(repository: Path) -> tuple[GitLayout, Refs]:
    """The user's repository and its refs before the run."""
    layout = find_git(repository)
    assert layout is not None
    return layout, read_refs(layout, 40)


@pytest.fixture
def inside(repository: Path, ground: Path, git) -> Path:
    """A copy of the repository, where anything can be done."""
    git(ground, "clone", "-q", str(repository), "inside")
    return ground / "inside"


def bundle(git, inside: Path, *what: str) -> bytes:
    """A bundle of that copy."""
    git(inside, "bundle", "create", "-q", "../out.bundle", *what)
    return (inside.parent / "out.bundle").read_bytes()


async def take_over(
    data: bytes, users: tuple[GitLayout, Refs], *, actor: Actor | None = None
) -> tuple[dict[str, str], list[str]]:
    """Import a bundle as run `r`."""
    run_dir = users[0].workspace.parent / "r"
    run_dir.mkdir()
    out = await import_bundle(
        data, layout=users[0], base=users[1], run_dir=run_dir, actor=actor or Actor.current()
    )
    return out.refs, list(out.notes)


def snapshot(repository: Path) -> list[str]:
    """Every file of the user's git directory."""
    return sorted(str(path) for path in (repository / ".git").rglob("*"))


async def test_honest_bundle(users, inside: Path, repository: Path, git):
    """New commits come over, those the user has are not sent again, and the repository stays sound."""
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    refs, notes = await take_over(bundle(git, inside, "main", "^origin/main"), users)
    assert notes == []
    assert refs == {"refs/ringfence/r/main": git(inside, "rev-parse", "main")}
    assert git(repository, "for-each-ref", "--format=%(refname)") == "refs/heads/main\nrefs/ringfence/r/main"
    git(repository, "fsck", "--strict")


async def test_no_hook_of_the_repository_runs(users, inside: Path, repository: Path, git):
    """Refs are made in the user's repository, whose hooks somebody else may have written."""
    marker = repository.parent / "ran"
    hook = repository / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(marker))}\n")
    hook.chmod(0o755)
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    refs, _notes = await take_over(bundle(git, inside, "main", "^origin/main"), users)
    assert list(refs) == ["refs/ringfence/r/main"]
    assert not marker.exists()


def test_nothing_is_written_to_what_came_in_the_repositorys_place(users, inside: Path, repository: Path):
    """What is called `.git` when a run ends may be another one than when it began."""
    (repository / ".git").rename(repository / "was-git")
    (repository / ".git").symlink_to(inside / ".git")
    assert "is not the repository any more" in (unsafe_to_write(users[0], "r") or "")


@pytest.mark.parametrize("damage", slow_after(1, ["truncated", "flipped", "no-bundle", "empty"]))
async def test_damaged_bundle_changes_nothing(damage: str, users, inside: Path, repository: Path, git):
    """What is not whole is refused, and nothing of it is among the user's objects."""
    (inside / "big").write_bytes(bytes(range(256)) * 8)
    git(inside, "add", "-A")
    git(inside, "commit", "-qm", "new")
    data = bundle(git, inside, "main", "^origin/main")
    data = {
        "truncated": data[:-30],
        "flipped": data[:-40] + bytes([data[-40] ^ 255]) + data[-39:],
        "no-bundle": b"x" * 1000,
        "empty": b"",
    }[damage]
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault):
        await take_over(data, users)
    assert snapshot(repository) == before


async def test_object_git_would_trip_over_is_refused(users, inside: Path, repository: Path, git):
    """A tree that holds `.git`, with which a checkout would plant hooks, does not pass fsck."""
    blob = git(inside, "hash-object", "-w", "--stdin", stdin="x")
    raw = b"40000 .git\0" + bytes.fromhex(git(inside, "mktree", stdin=f"100644 blob {blob}\tconfig\n"))
    data = b"tree %d\0" % len(raw) + raw
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    path = inside / ".git/objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(data))
    tip = git(inside, "commit-tree", name, "-p", "HEAD", "-m", "evil")
    git(inside, "update-ref", "refs/heads/evil", tip)
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault, match="hasDotgit"):
        await take_over(bundle(git, inside, "evil", "^origin/main"), users)
    assert snapshot(repository) == before


async def test_missing_history_is_refused(users, inside: Path, repository: Path, git):
    """A bundle that leans on commits the user does not have is refused."""
    for message in ("hidden", "shown"):
        git(inside, "commit", "-q", "--allow-empty", "-m", message)
    before = snapshot(repository)
    with pytest.raises(InfrastructureFault):
        await take_over(bundle(git, inside, "main", "^main~1"), users)
    assert snapshot(repository) == before


async def test_branch_that_is_no_commit_is_left_out(users, inside: Path, git):
    """A ref that points at a blob or tag is not taken for a branch with commits."""
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    data = bundle(git, inside, "main", "^origin/main")
    blob = git(inside, "rev-parse", "origin/main:a.txt").encode()
    head = git(inside, "rev-parse", "main").encode()
    data = data.replace(
        head + b" refs/heads/main\n", head + b" refs/heads/main\n" + blob + b" refs/heads/blob\n", 1
    )
    refs, notes = await take_over(data, users)
    assert set(refs) == {"refs/ringfence/r/main"}
    assert "refs/heads/blob" in notes[0]


@pytest.mark.parametrize(
    "name",
    ["refs/tags/v", "refs/heads/../../x", "refs/heads/a..b", "refs/heads/x.lock", "refs/heads/a b", "refs/heads/HEAD",
     "refs/ringfence/other/main", "refs/heads/-x/.y", "refs/heads/\x1b[31m", "--upload-pack=x",
     "refs/heads/a:refs/heads/main"],
)  # fmt: skip
def test_hostile_names_are_left_out(name: str):
    """Names that are no branch, or that git would take for something else, never reach git."""
    header = f"# v2 git bundle\n{'0' * 40} {name}\n{'1' * 40} refs/heads/good\n\nPACK".encode()
    assert set(parse_bundle(header, "sha1").heads) == {"refs/heads/good"}


def test_number_of_refs_is_bounded():
    """A flood of branches is cut."""
    lines = "".join(f"{'0' * 40} refs/heads/b{i}\n" for i in range(1000))
    assert len(parse_bundle(f"# v2 git bundle\n{lines}\nPACK".encode(), "sha1").heads) == MAX_REFS


@pytest.mark.parametrize("capability", ["@filter=blob:none", "@object-format=sha256", "@new"])
def test_capabilities_we_did_not_ask_for(capability: str):
    """A bundle that wants to be a partial clone, or of another format, is refused."""
    with pytest.raises(InfrastructureFault):
        parse_bundle(f"# v3 git bundle\n{capability}\n{'0' * 40} refs/heads/x\n\nPACK".encode(), "sha1")


@pytest.mark.slow
async def test_repository_that_cannot_be_written(users, inside: Path, repository: Path, ground: Path, git):
    """Commits that the repository cannot take are kept beside the run, and can be fetched as the note says."""
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    data = bundle(git, inside, "main", "^origin/main")
    git(ground, "clone", "-q", str(repository), "mine")
    (repository / ".git" / "objects" / "pack").chmod(0o555)
    before = snapshot(repository)
    stranger = Actor(12_345, 12_345) if os.geteuid() == 0 else Actor.current()
    refs, notes = await take_over(data, users, actor=stranger)
    assert (refs, snapshot(repository)) == ({}, before)
    assert "Permission denied" in notes[0]
    fetch = shlex.split(notes[1].split("`")[1])
    git(ground / "mine", *fetch[1:])
    assert git(ground / "mine", "log", "-1", "--format=%s", "refs/ringfence/r/main") == "new"


async def test_ref_that_cannot_be_made(users, inside: Path, repository: Path, git):
    """A commit whose ref cannot be made in the repository is kept beside the run, too."""
    git(inside, "commit", "-q", "--allow-empty", "-m", "new")
    git(repository, "update-ref", "refs/ringfence/r/main/below", "HEAD")
    refs, notes = await take_over(bundle(git, inside, "main", "^origin/main"), users)
    assert refs == {}
    assert "could not be made" in notes[0]
    assert (repository.parent / "r" / "commits.bundle").stat().st_size > 0
