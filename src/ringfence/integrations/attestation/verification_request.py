"""Verifies an attestation as a user requested it: finds it, verifies its anchors, and then the statement itself."""

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.anchors import (
    Anchors,
    VerifiedAnchor,
    anchors_file,
    read_anchors,
    verify_anchors,
)
from ringfence.integrations.attestation.envelope import MAX_ENVELOPE_BYTES, parse_envelope
from ringfence.integrations.attestation.notes import check_trailer, read_note
from ringfence.integrations.attestation.statement import parse_statement
from ringfence.integrations.attestation.verification import (
    Report,
    Requirements,
    TreeChoice,
    Verifier,
    verify_attestation,
)

_UNCHECKED = "it has anchors, which were not checked; add --anchor git:REMOTE or --tsa-certificate FILE"


@frozen
class VerificationRequest:
    """The verification that a user requests."""

    file: Path | None
    """The attestation; None: the note of the commit."""
    verifiers: tuple[Verifier, ...]
    now: datetime
    tree: TreeChoice | None = None
    record: Path | None = None
    """The directory of a copy of the run's record."""
    requirements: Requirements | None = None
    anchors: tuple[str, ...] = ()
    """Values of `--anchor`."""
    certificates: Path | None = None
    """The certificates of the authorities of time-stamp servers."""


async def run_verification(request: VerificationRequest) -> Report:
    """Verify an attestation; the report names the anchors that were verified.

    Raises:
        RingfenceError: As `read_note`, `verify_anchors` and `verify_attestation`.
    """
    name, data, kept = await _find(request)
    anchors: list[VerifiedAnchor] = []
    if request.anchors or request.certificates is not None:
        statement = parse_statement(parse_envelope(data, name=name).payload_bytes, name=name)
        anchors = await verify_anchors(
            data,
            journal=statement.predicate.journal.head,
            remotes=request.anchors,
            certificates=request.certificates,
            kept=kept,
        )
    report = await verify_attestation(
        data,
        name=name,
        verifiers=request.verifiers,
        now=request.now,
        tree=request.tree,
        record=request.record,
        requirements=request.requirements,
        proved_at=min((each.proved_at for each in anchors if each.proved_at is not None), default=None),
    )
    unchecked = () if anchors or not _has_anchors(request, kept) else (_UNCHECKED,)
    return replace(
        report,
        proved=(*report.proved, *(each.text for each in anchors)),
        uncovered=(*unchecked, *report.uncovered),
    )


def _has_anchors(request: VerificationRequest, kept: Anchors | None) -> bool:
    return kept is not None or (request.file is not None and os.path.lexists(anchors_file(request.file)))


async def _find(request: VerificationRequest) -> tuple[str, bytes, Anchors | None]:
    """Return the name and the bytes of the envelope, and its anchors if the request needs them."""
    tree = request.tree
    if request.file is None:
        if tree is None or tree.commit is None:
            raise UsageError("a note is attached to a commit; name one")
        note = await read_note(tree.path, tree.commit)
        return f"the note of {note.commit[:12]}", note.envelope, note.anchors
    with request.file.open("rb") as opened:
        data = opened.read(MAX_ENVELOPE_BYTES + 1)
    if tree is not None and tree.commit is not None:
        await check_trailer(tree.path, tree.commit, data)
    kept = None
    if request.certificates is not None:
        kept = read_anchors(anchors_file(request.file), data)
    return str(request.file), data, kept
