"""Anchors of an envelope, and the file beside it that keeps them: `FILE.anchors`.

DSSE has no place for what is not signed, and an anchor is made after the signatures, which it covers. So it is stored
beside the envelope, as JSON: time-stamps as they were received, and for git the remote, the ref and the commit.
Nothing in that file is trusted: time-stamps are verified, and a remote is contacted only if the verifier names it.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from ringfence.errors import ConfigurationError, InfrastructureFault, RecordError, UsageError, next_step
from ringfence.filesystem import replace_file
from ringfence.frozen import frozen
from ringfence.integrations.attestation.git_anchor import (
    AnchorMissing,
    GitRemote,
    append_anchor,
    find_anchor,
    parse_remote,
)
from ringfence.integrations.attestation.timestamp import (
    MAX_TOKEN_BYTES,
    Timestamp,
    TimestampRefused,
    check_server,
    read_certificates,
    request_timestamp,
    verify_timestamp,
)
from ringfence.journal.layout import open_regular

MAX_ANCHORS = 16
_SUFFIX = ".anchors"
_MAX_BYTES = 4 * MAX_ANCHORS * MAX_TOKEN_BYTES


class GitRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="git", tag_field="type"
):
    """An anchor in git."""

    remote: str
    ref: str
    commit: str


class TimestampRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rfc3161", tag_field="type"
):
    """A time-stamp."""

    server: str
    """The server's URL."""
    response: bytes
    """The server's response (`TimeStampResp`), in base64."""


class Anchors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of an envelope's anchors."""

    version: Literal[1] = 1
    envelope: str
    """`sha256:` and the SHA-256 of the envelope's file, in hexadecimal."""
    anchors: list[GitRecord | TimestampRecord]


@frozen
class VerifiedAnchor:
    """An anchor that was verified, in words for the user."""

    text: str
    proved_at: datetime | None = None
    """A time at which the envelope existed, by a trusted clock; None: the anchor proves no time."""


def digest_envelope(envelope: bytes) -> str:
    """Return the SHA-256 of an envelope's file in hexadecimal, as `sha256sum` prints it."""
    return sha256(envelope).hexdigest()


def anchors_file(envelope_file: Path) -> Path:
    """Return the file of an envelope's anchors."""
    return envelope_file.with_name(envelope_file.name + _SUFFIX)


async def add_anchors(
    names: Sequence[str],
    envelope: bytes,
    *,
    journal: str,
    certificates: Path | None,
) -> Anchors:
    """Anchor an envelope, and return its anchors.

    Args:
        names: Values of `--anchor`: `git:REMOTE[#REF]` or `tsa:URL`. All are parsed before the first is used.
        envelope: The envelope's file.
        journal: The head of the journal, in hexadecimal.
        certificates: The authorities of time-stamp servers.

    Raises:
        UsageError: A name is not that of an anchor, or a time-stamp server is named without its authority.
        InfrastructureFault: A remote or server refused, or cannot be reached.
    """
    targets = [parse_anchor(name) for name in names]
    if len(targets) > MAX_ANCHORS:
        raise UsageError(f"an envelope has {MAX_ANCHORS} anchors at most; name fewer")
    if certificates is None and not all(isinstance(target, GitRemote) for target in targets):
        raise UsageError(
            "a time-stamp is verified before it is kept; name the certificate of the server's authority with "
            "--tsa-certificate FILE"
        )
    authorities = read_certificates(certificates) if certificates is not None else ()
    made: list[GitRecord | TimestampRecord] = []
    for target in targets:
        if isinstance(target, GitRemote):
            found = await append_anchor(target, envelope=digest_envelope(envelope), journal=journal)
            made.append(GitRecord(remote=target.url, ref=target.ref, commit=found.commit))
        else:
            stamped = await request_timestamp(envelope, target, authorities)
            made.append(TimestampRecord(server=target, response=stamped.response))
    return Anchors(envelope=f"sha256:{digest_envelope(envelope)}", anchors=made)


def parse_anchor(name: str) -> GitRemote | str:
    """Return the remote of git, or the URL of the time-stamp server, that a value of `--anchor` names.

    Raises:
        UsageError: The value names neither.
    """
    kind, _, rest = name.partition(":")
    if kind == "git":
        return parse_remote(rest)
    if kind == "tsa":
        return check_server(rest)
    raise UsageError(f"{name[:100]!r} names no anchor; give 'git:REMOTE[#REF]' or 'tsa:URL'")


async def verify_anchors(
    envelope: bytes,
    *,
    journal: str,
    remotes: Sequence[str] = (),
    certificates: Path | None = None,
    kept: Anchors | None = None,
) -> list[VerifiedAnchor]:
    """Verify the anchors that the verifier requires.

    Args:
        envelope: The envelope's file.
        journal: The head of the journal that its statement names, in hexadecimal.
        remotes: Values of `--anchor`, each of which has to hold the envelope: `git:REMOTE[#REF]`; a file is a bundle.
        certificates: The authorities of time-stamp servers: with them one time-stamp at least has to be valid.
        kept: The anchors that are stored beside the envelope.

    Raises:
        AnchorMissing, TimestampRefused: A required anchor is absent, or is that of another envelope.
        UsageError: A name is not that of a remote.
        InfrastructureFault: A remote cannot be reached.
    """
    targets = [parse_anchor(name) for name in remotes]
    found: list[VerifiedAnchor] = []
    for target in targets:
        if not isinstance(target, GitRemote):
            raise UsageError(
                "a time-stamp is verified offline, by --tsa-certificate FILE; name no server for a verification"
            )
        found.append(await _verify_git(target, envelope, journal))
    if certificates is not None:
        found.append(_verify_timestamps(envelope, kept, certificates))
    return found


async def _verify_git(remote: GitRemote, envelope: bytes, journal: str) -> VerifiedAnchor:
    found = await find_anchor(remote, envelope=digest_envelope(envelope))
    if found.journal != journal:
        raise AnchorMissing(
            f"the anchor {found.commit[:12]} in {str(remote)!r} names another journal than the statement; the journal "
            "or the anchor was replaced"
        )
    how = "online" if remote.kind == "remote" else "offline"
    return VerifiedAnchor(
        f"anchored in {str(remote)!r} as commit {found.commit} (checked {how}, against the {remote.kind})"
    )


def _verify_timestamps(envelope: bytes, kept: Anchors | None, certificates: Path) -> VerifiedAnchor:
    """Verify the time-stamps beside an envelope; return the oldest that is valid."""
    authorities = read_certificates(certificates)
    stamps = [each for each in kept.anchors if isinstance(each, TimestampRecord)] if kept is not None else []
    if not stamps:
        raise AnchorMissing(
            "no time-stamp is beside the envelope, in FILE.anchors; `ringfence runs attest --anchor tsa:URL` makes one"
        )
    valid: list[Timestamp] = []
    refusals: list[TimestampRefused] = []
    for stamp in stamps:
        try:
            valid.append(verify_timestamp(envelope, stamp.response, authorities))
        except TimestampRefused as exc:
            refusals.append(exc)
    if not valid:
        raise refusals[0]
    oldest = min(valid, key=lambda each: each.time)
    return VerifiedAnchor(
        f"time-stamped at {oldest.time:%Y-%m-%d %H:%M:%S} UTC by {oldest.server[:200]!r} (checked offline)",
        proved_at=oldest.time,
    )


def encode_anchors(anchors: Anchors) -> bytes:
    """Return the file of anchors."""
    return msgspec.json.format(msgspec.json.encode(anchors)) + b"\n"


def write_anchors(file: Path, anchors: Anchors) -> None:
    """Write the file of anchors, atomically.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    try:
        replace_file(file, encode_anchors(anchors), mode=0o644)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc)}") from exc


def read_anchors(file: Path, envelope: bytes) -> Anchors | None:
    """Read the file of an envelope's anchors; None if there is none.

    Raises:
        ConfigurationError: The file cannot be read, or holds no anchors.
        RecordError: The anchors are those of another envelope.
    """
    try:
        with open_regular(file) as opened:
            data = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigurationError(
            f"the anchors cannot be read: {os.strerror(exc.errno or 0)}", file=file
        ) from exc
    return parse_anchors(data, envelope, file)


def parse_anchors(data: bytes, envelope: bytes, file: Path) -> Anchors:
    """Parse a file of anchors. Raises as `read_anchors`."""
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        anchors = msgspec.json.decode(data, type=Anchors)
        if len(anchors.anchors) > MAX_ANCHORS:
            raise ValueError(f"it has more than {MAX_ANCHORS} anchors")
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(
            f"these are no anchors of an envelope: {exc}; remove the file", file=file
        ) from exc
    if anchors.envelope != f"sha256:{digest_envelope(envelope)}":
        raise RecordError(
            f"{str(file)!r} has the anchors of another envelope, {anchors.envelope[:80]!r}; get both files anew"
        )
    return anchors
