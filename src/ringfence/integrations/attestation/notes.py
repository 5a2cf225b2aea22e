"""Envelopes as git notes: the statement about the tree of a commit, found by the commit and pushed with its branch.

`refs/notes/ringfence` holds envelopes, `refs/notes/ringfence-anchors` their anchors. A commit may also name its envelope
by the trailer `Ringfence-Attestation: sha256:DIGEST`. Whoever can push can write notes, so a note proves nothing by
itself: a verifier checks the envelope's signatures, and that its tree is that of the commit.
"""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from ringfence.errors import RecordError, RingfenceError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.anchors import Anchors, digest_envelope, encode_anchors, parse_anchors
from ringfence.integrations.attestation.comparison import find_commit
from ringfence.integrations.attestation.envelope import MAX_ENVELOPE_BYTES
from ringfence.loop.repository.commit import identity
from ringfence.loop.repository.delivery import set_ref
from ringfence.loop.repository.run_commit import add_objects
from ringfence.loop.repository.source import Source, SourceView
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.commits import unsafe_places
from ringfence.sandbox.workspace.git.packs import quarantine
from ringfence.sandbox.workspace.git.refs import read_refs
from ringfence.sandbox.workspace.run_as import Actor

NOTES = "refs/notes/ringfence"
ANCHOR_NOTES = "refs/notes/ringfence-anchors"
TRAILER = "Ringfence-Attestation"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_ANCHORS_BYTES = 8 * 1024**2
_MAX_COMMIT_BYTES = 1024**2


class NoteMissing(RingfenceError):
    """No attestation is attached to a commit, or another one than the commit names."""


@frozen
class Note:
    """What is attached to a commit. Nothing in it is verified."""

    commit: str
    envelope: bytes
    anchors: Anchors | None


def trailer_of(envelope: bytes) -> str:
    """Return the line of a commit's message that names an envelope."""
    return f"{TRAILER}: sha256:{digest_envelope(envelope)}"


async def attach_note(
    source: Source, view: SourceView, commit: str, envelope: bytes, anchors: Anchors | None = None
) -> None:
    """Attach an envelope to a commit of the user's repository, in place of an earlier one.

    Args:
        source: The repository.
        view: It, opened for reading.
        commit: The id of the commit.
        envelope: The envelope's file.
        anchors: Its anchors.

    Raises:
        RecordError: A place in the repository is not its owner's.
        DeliveryRefused: Somebody else changed the notes meanwhile.
        InfrastructureFault: Git failed; notes are as they were.
    """
    why = await source.actor.call(lambda: unsafe_places(source.layout, ("refs", "refs/notes")))
    if why is not None:
        raise RecordError(f"no note is written in {str(source.root)!r}: {why}")
    git = replace(view.git, environment=identity())
    await _set_note(source, view, git, NOTES, commit, envelope)
    if anchors is not None:
        await _set_note(source, view, git, ANCHOR_NOTES, commit, encode_anchors(anchors))


async def _set_note(source: Source, view: SourceView, git: Git, ref: str, commit: str, data: bytes) -> None:
    before = view.refs.direct.get(ref)
    blob = (await git.run("hash-object", "-w", "--stdin", stdin=data)).stdout.decode().strip()
    present = await git.run("notes", f"--ref={ref}", "list", commit, accept=(0, 1, 128))
    if present.ok and present.stdout.decode().strip() == blob:
        return
    await git.run("notes", f"--ref={ref}", "add", "--force", "-C", blob, commit)
    after = (await git.run("rev-parse", "--verify", ref)).stdout.decode().strip()
    await add_objects(source, git, [after], known=[before] if before is not None else [])
    await set_ref(source, ref, after, before, reason=f"ringfence: attestation of {commit[:12]}")


async def read_note(root: Path, rev: str) -> Note:
    """Return what is attached to a commit of the repository that a directory is in.

    Args:
        root: The directory.
        rev: `HEAD`, a branch, a tag, or the whole id of a commit.

    Raises:
        NoteMissing, RecordError: As `find_note`.
        UsageError, ConfigurationError: There is no repository that can be used, or it has no such commit.
    """
    async with _open(root, rev) as (git, commit):
        return await find_note(git, commit)


async def check_trailer(root: Path, rev: str, envelope: bytes) -> None:
    """Check that a commit names no other envelope.

    Raises:
        NoteMissing: It does.
        UsageError, ConfigurationError: As `read_note`.
    """
    async with _open(root, rev) as (git, commit):
        await _check_named(git, commit, envelope)


@asynccontextmanager
async def _open(root: Path, rev: str) -> AsyncIterator[tuple[Git, str]]:
    """Open the repository that a directory is in for reading, and find a commit of it."""
    repository, object_format, commit = await find_commit(
        await anyio.to_thread.run_sync(root.resolve), rev, advice="name an attestation's file"
    )
    refs = await anyio.to_thread.run_sync(lambda: read_refs(repository.layout, object_format))
    async with quarantine(repository.layout, refs, Actor.current()) as git:
        yield git, commit


async def find_note(git: Git, commit: str) -> Note:
    """Return what is attached to a commit.

    Args:
        git: A git directory of ringfence's own that can read the repository's objects and refs.
        commit: The id of the commit.

    Raises:
        NoteMissing: Nothing is, or another envelope than the commit's trailer names.
        RecordError: A note is too large, or not what it has to be.
    """
    envelope = await _read_note(git, NOTES, commit, MAX_ENVELOPE_BYTES)
    if envelope is None:
        raise NoteMissing(
            f"no attestation is attached to commit {commit[:12]!r}; fetch the notes (`git fetch origin "
            f"'refs/notes/ringfence*:refs/notes/ringfence*'`), or name its file"
        )
    await _check_named(git, commit, envelope)
    anchors = await _read_note(git, ANCHOR_NOTES, commit, _MAX_ANCHORS_BYTES)
    place = Path(f"note of {commit[:12]}")
    return Note(commit, envelope, None if anchors is None else parse_anchors(anchors, envelope, place))


async def _check_named(git: Git, commit: str, envelope: bytes) -> None:
    named, digest = await read_trailer(git, commit), digest_envelope(envelope)
    if named is not None and named != f"sha256:{digest}":
        raise NoteMissing(
            f"commit {commit[:12]!r} names the attestation {named}, and this is sha256:{digest}; it was replaced"
        )


async def _read_note(git: Git, ref: str, commit: str, limit_bytes: int) -> bytes | None:
    listed = await git.run("notes", f"--ref={ref}", "list", commit, accept=(0, 1, 128))
    if not listed.ok:
        return None
    name = listed.stdout.decode("ascii", "replace").strip()
    checked = await git.run(
        "cat-file", "--batch-check=%(objecttype) %(objectsize)", stdin=f"{name}\n".encode()
    )
    kind, _, size = checked.stdout.decode("ascii", "replace").strip().partition(" ")
    if kind != "blob" or not size.isdigit() or int(size) > limit_bytes:
        raise RecordError(
            f"the note of commit {commit[:12]!r} in {ref!r} is no attestation: {kind[:40]!r} of {size[:20]!r}"
        )
    return (await git.run("cat-file", "blob", name, output_limit_bytes=limit_bytes + 1)).stdout


async def read_trailer(git: Git, commit: str) -> str | None:
    """Return the digest in a commit's trailer `Ringfence-Attestation`; None without one.

    Raises:
        NoteMissing: It has several, or one that is no digest.
    """
    form = f"--format=%(trailers:key={TRAILER},valueonly,only,unfold)"
    words = ("log", "-1", "--no-show-signature", "--no-notes", "--no-color", form, commit)
    shown = await git.run(*words, output_limit_bytes=_MAX_COMMIT_BYTES)
    values = shown.stdout.decode("utf-8", "replace").split()
    if not values:
        return None
    if len(values) > 1 or not _DIGEST.fullmatch(values[0]):
        raise NoteMissing(
            f"the trailer {TRAILER!r} of commit {commit[:12]!r} is no single digest: {os.fsdecode(values[0])[:100]!r}"
        )
    return values[0]
