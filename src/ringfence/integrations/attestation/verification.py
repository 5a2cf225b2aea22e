"""Verifies an attestation: its signatures by trusted keys, its statement, and the tree that it describes.

It needs neither a network nor a state directory, and writes nothing. `check_signatures` and `judge_signatures` are the
parts about signatures; `verify_attestation` calls them and the others, and its report separates what is proved from what
the signer claims.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import anyio.to_thread

from ringfence.errors import AuthenticationFailed, ExitCode, RecordError
from ringfence.escape import visible
from ringfence.events import JournalSealed
from ringfence.frozen import frozen
from ringfence.integrations.attestation.claims import list_claims, list_gaps
from ringfence.integrations.attestation.comparison import Comparison, compare_commit, compare_tree
from ringfence.integrations.attestation.envelope import (
    Envelope,
    Signature,
    SignatureFormat,
    fingerprint,
    pae,
    parse_envelope,
)
from ringfence.integrations.attestation.local_key import openssh_key
from ringfence.integrations.attestation.statement import TREE, Statement, parse_statement
from ringfence.integrations.attestation.trusted_keys import is_ed25519
from ringfence.journal import find_last_event, verify_run
from ringfence.journal.seal import is_signed, seal_message

FORMATS: Mapping[SignatureFormat, Callable[[Signature, bytes], bool]] = {"ed25519": is_ed25519}
"""For each format whose public key is in the envelope: whether a signature over a message was made by that key."""


class Verifier(Protocol):
    """Trusts some keys, and verifies their signatures. `trusted_keys.KeyVerifier` is the one for `--key`."""

    async def verify(self, signature: Signature, message: bytes, moments: Sequence[datetime]) -> str | None:
        """Return who signed, in words for the user; None if no trusted key did.

        Args:
            signature: From anybody. Neither its keyid nor its public key or format may decide what is trusted.
            message: What it has to cover.
            moments: Times at which the key has to be valid.

        Raises:
            AuthenticationFailed: A key of this verifier signed, and is not valid at one of the times.
        """


@frozen
class JudgedSignature:
    """A signature, and whether it counts."""

    signature: Signature
    signer: str | None
    """Who made it, as a verifier knows; None if it does not count."""
    fault: str = ""
    """Why it does not count."""


def check_signatures(envelope: Envelope, *, name: str) -> None:
    """Check that every signature with a public key in the envelope is over this payload, whoever has that key.

    Raises:
        RecordError: A signature is wrong: the statement or the signature was changed.
    """
    message = pae(envelope.payload_type, envelope.payload_bytes)
    for each in envelope.signatures:
        if each.public_key is not None and not _is_genuine(each, message):
            raise RecordError(
                f"{name!r} was changed after it was signed: the signature of {each.keyid} is wrong; get the file anew"
            )


def _is_genuine(signature: Signature, message: bytes) -> bool:
    check = FORMATS.get(signature.format)
    return check is not None and check(signature, message)


async def judge_signatures(
    envelope: Envelope,
    verifiers: Sequence[Verifier],
    *,
    issued_at: datetime,
    now: datetime,
    proved_at: datetime | None = None,
    name: str,
) -> tuple[JudgedSignature, ...]:
    """Find which signatures of an envelope count.

    A key with a limit in time must be valid at `issued_at`, which only the signer claims, and at the time by which the
    signature is known to exist: `proved_at` or, without it, now.

    Args:
        envelope: The parsed envelope.
        verifiers: Who is trusted; none: no signature counts.
        issued_at: The time in the statement.
        now: The present time.
        proved_at: A time at which the signatures existed, as an anchor proves.
        name: The file's name, for errors.

    Returns:
        All signatures, at least one of which counts if there are verifiers.

    Raises:
        AuthenticationFailed: No trusted key signed it, or each that did is not valid at these times.
    """
    message = pae(envelope.payload_type, envelope.payload_bytes)
    moments = (issued_at, proved_at or now)
    judged = tuple([await _judge(each, verifiers, message, moments) for each in envelope.signatures])
    if verifiers and all(each.signer is None for each in judged):
        faults = "; ".join(each.fault for each in judged)
        raise AuthenticationFailed(f"{name!r} is not signed by a trusted key: {faults}")
    return judged


async def _judge(
    signature: Signature, verifiers: Sequence[Verifier], message: bytes, moments: Sequence[datetime]
) -> JudgedSignature:
    fault = f"the key {signature.keyid} is unknown; name its public key by --key if you trust it"
    for verifier in verifiers:
        try:
            signer = await verifier.verify(signature, message, moments)
        except AuthenticationFailed as exc:
            fault = str(exc)
            continue
        if signer is not None:
            return JudgedSignature(signature, signer)
    return JudgedSignature(signature, None, fault)


Verdict = Literal["verified", "different", "unchecked", "unknown_signer"]


@frozen
class TreeChoice:
    """The tree that is compared with the statement."""

    path: Path
    commit: str | None = None
    """A commit of the repository there; None: the files in the work tree."""
    all_files: bool = False
    """Whether a file that git does not track is a difference, too."""


@frozen
class Requirements:
    """What a verifier demands of a run beyond a valid statement."""

    any_state: bool = False
    """Whether a run without a passed check is accepted."""
    check: str | None = None
    """The only command of a check that is accepted."""


@frozen
class Report:
    """What the verification of an attestation found."""

    statement: Statement
    signatures: tuple[JudgedSignature, ...]
    verdict: Verdict
    fault: str
    """Why the verdict is not `verified`, in one line; empty if it is."""
    exit_code: ExitCode
    difference: str | None
    """The first differing path, with control characters spelled out."""
    proved: tuple[str, ...]
    claimed: tuple[str, ...]
    """What the signer states and nothing here confirms."""
    uncovered: tuple[str, ...]
    """What neither the statement nor this verification covers."""


async def verify_attestation(
    data: bytes,
    *,
    name: str,
    verifiers: Sequence[Verifier],
    now: datetime,
    tree: TreeChoice | None = None,
    record: Path | None = None,
    requirements: Requirements | None = None,
    proved_at: datetime | None = None,
) -> Report:
    """Verify an attestation. Nothing is written, and nothing but the named tree is read.

    Args:
        data: The file's content.
        name: The file's name, for messages.
        verifiers: Who is trusted; none: the report's verdict is at best `unknown_signer`.
        now: The present time.
        tree: The tree to compare; None: no tree is compared.
        record: The directory of a copy of the run's record, which has to be the stated one.
        requirements: What is demanded of the run; None: that a check passed.
        proved_at: As in `judge_signatures`.

    Raises:
        ConfigurationError: The file is no attestation, or of another version.
        RecordError: It was changed, or contradicts itself, or `record` is damaged or another one.
        AuthenticationFailed: No trusted key signed it, or that key is not valid.
        UsageError, InfrastructureFault: The tree cannot be compared.
    """
    envelope = parse_envelope(data, name=name)
    check_signatures(envelope, name=name)
    statement = parse_statement(envelope.payload_bytes, name=name)
    issued_at = statement.predicate.issued_at
    judged = await judge_signatures(
        envelope, verifiers, issued_at=issued_at, now=now, proved_at=proved_at, name=name
    )
    seal = _check_seal(statement, judged, name=name)
    found = None if tree is None else await _compare(statement, tree, name=name)
    signers = [f"{name!r} is unchanged since {each.signer} signed it" for each in judged if each.signer]
    unknown = [each.fault for each in judged if not each.signer]
    if not signers and any(each.signature.public_key is not None for each in judged):
        signers = [f"{name!r} is unchanged since it was signed, by whomever"]
    proved = [*signers, seal]
    if record is not None:
        proved.append(await anyio.to_thread.run_sync(_check_record, statement, record))
    if tree is not None and found is not None and found.difference is None:
        proved.append(_describe_match(statement, tree, found))
    verdict, fault, code = _decide(statement, judged, tree, found, requirements or Requirements())
    difference = found.difference if found is not None else None
    return Report(
        statement=statement,
        signatures=judged,
        verdict=verdict,
        fault=fault,
        exit_code=code,
        difference=visible(os.fsdecode(difference.path), one_line=True) if difference is not None else None,
        proved=tuple(proved),
        claimed=tuple(list_claims(statement)),
        uncovered=(*list_gaps(statement, found, is_compared=tree is not None), *unknown),
    )


def _check_seal(statement: Statement, judged: Sequence[JudgedSignature], *, name: str) -> str:
    """Verify the seal of the journal, and say who made it."""
    journal, run = statement.predicate.journal, statement.predicate.run
    message = seal_message(run.id, seq=journal.lines - 1, time=journal.sealed_at, head=journal.head)
    if not is_signed(message, signature=journal.signature, public_hex=journal.public_key):
        raise RecordError(
            f"{name!r} contradicts itself: the seal of the journal in it is wrong; do not rely on it"
        )
    key = openssh_key(journal.public_key)
    is_same = any(each.signer and each.signature.public_key == key for each in judged)
    who = "the same key" if is_same else f"the key {fingerprint(key)}, whose owner is not known here,"
    return f"{who} sealed a journal of run {run.id} with {journal.lines} lines and the head {journal.head}"


def _check_record(statement: Statement, record: Path) -> str:
    """Verify a copy of the run's record, and that it is the one whose seal the statement holds."""
    journal = statement.predicate.journal
    found = verify_run(record, public_keys=[journal.public_key])
    if not found.ok:
        raise RecordError(
            f"--record {str(record)!r}: the record is {found.status}: {found.reason or 'no seal'}"
        )
    seal = find_last_event(record, "journal.sealed")
    head = seal.head if isinstance(seal, JournalSealed) else ""
    if (found.run_id, found.events, head) != (statement.predicate.run.id, journal.lines, journal.head):
        raise RecordError(
            f"--record {str(record)!r} is not the record of the statement, but that of run {found.run_id!r} with"
            f" {found.events} lines; name that of run {statement.predicate.run.id!r}"
        )
    return f"{str(record)!r} is the record that the statement is about, complete and unchanged: it shows what is claimed"


async def _compare(statement: Statement, tree: TreeChoice, *, name: str) -> Comparison:
    manifest = statement.predicate.manifest
    if tree.commit is not None:
        found = await compare_commit(tree.path, tree.commit, manifest.files, manifest.uncovered)
    else:
        found = await anyio.to_thread.run_sync(
            lambda: compare_tree(tree.path, manifest.files, manifest.uncovered, all_files=tree.all_files)
        )
    stated = statement.digest_of(TREE)
    if found.tree and (stated is None or stated.git_tree != found.tree):
        raise RecordError(
            f"{name!r} contradicts itself: its git tree is not that of its files; do not rely on it"
        )
    return found


def _describe_match(statement: Statement, tree: TreeChoice, found: Comparison) -> str:
    count = len(statement.predicate.manifest.files)
    place = f"commit {tree.commit!r} in {str(tree.path)!r}" if tree.commit else repr(str(tree.path))
    name = f" (git tree {found.tree})" if found.tree else ""
    return f"{place} holds exactly the files of the statement, {count} in all{name}"


def _decide(
    statement: Statement,
    judged: Sequence[JudgedSignature],
    tree: TreeChoice | None,
    found: Comparison | None,
    requirements: Requirements,
) -> tuple[Verdict, str, ExitCode]:
    """Return the verdict, with its reason and exit code."""
    if tree is not None and found is not None and found.difference is not None:
        path = visible(os.fsdecode(found.difference.path), one_line=True)
        what = f"{str(tree.path)!r} is not the attested tree: '{path}' {found.difference.what}"
        return "different", what, ExitCode.CHECK_RED
    predicate = statement.predicate
    state, check = predicate.run.state, predicate.check
    if requirements.check is not None and (check is None or check.command != requirements.check):
        actual = "none" if check is None else repr(check.command)
        return "unchecked", f"--check {requirements.check!r}: the check was {actual}", ExitCode.CHECK_RED
    if not requirements.any_state:
        advice = "; --any-state accepts it"
        if check is None and state in ("succeeded", "unverified", "ended"):
            why = f"no check passed: run {predicate.run.id} had none{advice}"
            return "unchecked", why, ExitCode.UNVERIFIED
        if state != "succeeded" or check is None or not check.passed:
            why = f"no check passed: run {predicate.run.id} ended as {state!r}{advice}"
            return "unchecked", why, ExitCode.CHECK_RED
        if check.tree != statement.digest_of(TREE):
            why = f"no check passed on these files: the check itself changed some while it ran{advice}"
            return "unchecked", why, ExitCode.CHECK_RED
    if not any(each.signer for each in judged):
        why = "who signed it is not known; name a public key that you trust by --key"
        return "unknown_signer", why, ExitCode.UNVERIFIED
    return "verified", "", ExitCode.OK
