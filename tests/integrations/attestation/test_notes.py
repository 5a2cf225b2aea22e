"""Envelopes as notes of commits, in real repositories that others may have written to."""

from pathlib import Path

import pytest
from tests.integrations.attestation.test_git_anchor import git

from ringfence.errors import RecordError, UsageError
from ringfence.integrations.attestation.anchors import Anchors, digest_envelope
from ringfence.integrations.attestation.notes import (
    ANCHOR_NOTES,
    NOTES,
    Note,
    NoteMissing,
    attach_note,
    find_note,
    trailer_of,
)
from ringfence.integrations.attestation.trusted_keys import check_outside
from ringfence.loop.repository.source import find_source, open_source

ENVELOPE = b'{"payload":"e30="}\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    git(tmp_path, "init", "-q", "-b", "main", "work")
    commit(tmp_path / "work", "start")
    return tmp_path / "work"


def commit(repository: Path, message: str) -> str:
    """Make an empty commit and return its id."""
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD")


async def attach(repository: Path, revision: str, envelope: bytes = ENVELOPE, anchors: Anchors | None = None):
    """Attach an envelope as the product does."""
    source = find_source(repository)
    async with open_source(source) as view:
        await attach_note(source, view, git(repository, "rev-parse", revision), envelope, anchors)


async def find(repository: Path, revision: str) -> Note:
    """Find what is attached."""
    async with open_source(find_source(repository)) as view:
        return await find_note(view.git, git(repository, "rev-parse", revision))


async def test_attached(repository: Path):
    """An envelope is found by its commit, byte by byte, and by git itself."""
    await attach(repository, "HEAD")
    assert (await find(repository, "HEAD")).envelope == ENVELOPE
    assert git(repository, "notes", "--ref=ringfence", "show", "HEAD") == ENVELOPE.decode().strip()
    git(repository, "fsck", "--strict")
    assert git(repository, "status", "--porcelain") == ""


async def test_anchors(repository: Path):
    """Anchors are attached with their envelope."""
    anchors = Anchors(envelope=f"sha256:{digest_envelope(ENVELOPE)}", anchors=[])
    await attach(repository, "HEAD", anchors=anchors)
    assert (await find(repository, "HEAD")).anchors == anchors
    await attach(repository, "HEAD", b"another")
    with pytest.raises(RecordError, match="another envelope"):
        await find(repository, "HEAD")


async def test_several_commits(repository: Path):
    """Each commit has its own, a later one replaces an earlier one, and earlier notes stay in the history."""
    await attach(repository, "HEAD")
    commit(repository, "next")
    await attach(repository, "HEAD", b"next\n")
    await attach(repository, "HEAD", b"newer\n")
    await attach(repository, "HEAD", b"newer\n")
    assert (await find(repository, "HEAD~")).envelope == ENVELOPE
    assert (await find(repository, "HEAD")).envelope == b"newer\n"
    assert git(repository, "rev-list", "--count", NOTES) == "3"


async def test_pushed(repository: Path, tmp_path: Path):
    """Notes are pushed and fetched like any ref."""
    await attach(repository, "HEAD")
    git(tmp_path, "clone", "-q", str(repository), "clone")
    git(tmp_path / "clone", "fetch", "-q", "origin", "refs/notes/ringfence*:refs/notes/ringfence*")
    assert (await find(tmp_path / "clone", "HEAD")).envelope == ENVELOPE


async def test_absent(repository: Path):
    """A commit without a note is named, with the command that fetches notes."""
    with pytest.raises(NoteMissing, match="git fetch"):
        await find(repository, "HEAD")


async def test_note_of_another_envelope(repository: Path):
    """A commit that names an envelope has that one attached, or none that counts."""
    commit(repository, f"change\n\n{trailer_of(ENVELOPE)}")
    await attach(repository, "HEAD")
    assert (await find(repository, "HEAD")).envelope == ENVELOPE
    await attach(repository, "HEAD", b"another\n")
    with pytest.raises(NoteMissing, match="replaced"):
        await find(repository, "HEAD")


@pytest.mark.parametrize(
    "trailers",
    ["Ringfence-Attestation: sha256:abc", f"{trailer_of(ENVELOPE)}\n{trailer_of(b'another')}"],
    ids=["no digest", "two"],
)
async def test_ambiguous_trailer(repository: Path, trailers: str):
    """A trailer that is no single digest is refused."""
    commit(repository, f"change\n\n{trailers}")
    await attach(repository, "HEAD")
    with pytest.raises(NoteMissing, match="no single digest"):
        await find(repository, "HEAD")


async def test_note_that_is_a_tree(repository: Path):
    """A note that is no blob, or larger than an envelope can be, is refused."""
    entry = (
        f"040000 tree {git(repository, 'rev-parse', 'HEAD^{tree}')}\t{git(repository, 'rev-parse', 'HEAD')}\n"
    )
    tree = git(repository, "mktree", stdin=entry.encode())
    git(repository, "update-ref", NOTES, git(repository, "commit-tree", "-m", "x", tree))
    with pytest.raises((RecordError, NoteMissing)):
        await find(repository, "HEAD")
    large = git(repository, "hash-object", "-w", "--stdin", stdin=b"x" * 9_000_000)
    git(repository, "update-ref", "-d", NOTES)
    git(repository, "notes", "--ref", ANCHOR_NOTES, "add", "-C", large, "HEAD")
    await attach(repository, "HEAD")
    with pytest.raises(RecordError, match="no attestation"):
        await find(repository, "HEAD")


async def test_no_hook_runs(repository: Path, tmp_path: Path):
    """Attaching and finding run no hook of the repository."""
    mark = tmp_path / "mark"
    for name in ("reference-transaction", "post-commit", "pre-commit"):
        (repository / ".git/hooks" / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (repository / ".git/hooks" / name).chmod(0o755)
    git(repository, "-c", "core.hooksPath=/dev/null", "config", "core.fsmonitor", f"touch {mark}")
    source = find_source(repository)
    async with open_source(source) as view:
        head = view.refs.head_commit()
        assert head is not None
        await attach_note(source, view, head, ENVELOPE)
    async with open_source(source) as view:
        assert (await find_note(view.git, head)).envelope == ENVELOPE
    assert not mark.exists()


def test_trust_from_the_tree(tmp_path: Path):
    """Keys that lie in the tree that they are to vouch for are refused, behind links as well."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for folder in (tree, outside):
        folder.mkdir()
        (folder / "allowed_signers").touch()
    (outside / "link").symlink_to(tree / "allowed_signers")
    (tree / "link").symlink_to(outside / "allowed_signers")
    check_outside(tree, [outside / "allowed_signers"])
    for file in (
        tree / "allowed_signers",
        tree / "link",
        outside / "link",
        outside / ".." / "tree" / "allowed_signers",
    ):
        with pytest.raises(UsageError, match="vouch"):
            check_outside(tree, [file])
