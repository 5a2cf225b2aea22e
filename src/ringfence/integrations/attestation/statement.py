"""The statement of an attestation: what a record says about one run, in the format in-toto Statement v1.

Source: https://github.com/in-toto/attestation/blob/v1.1.0/spec/v1/statement.md. The subjects are the resulting tree (by
git's id and by the digest of its manifest) and the patch. The predicate is ringfence's own and is described in
docs/reference/attestation.md; names follow https://slsa.dev/spec/v1.0/provenance and
https://github.com/in-toto/attestation/blob/v1.1.0/spec/predicates/test-result.md where they mean the same.

`facts.build_statement` makes a statement from a record, `parse_statement` reads one. A verifier parses exactly the
bytes that were signed. A field that this version does not know is an error, because it may limit what the others say.
"""

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from ringfence.errors import ConfigurationError, RecordError
from ringfence.integrations.attestation.envelope import MAX_PAYLOAD_BYTES
from ringfence.integrations.attestation.manifest import (
    MAX_FILES,
    FileEntry,
    check_files,
    decode_gap,
    digest_files,
)
from ringfence.strict_json import STRICT_DECODER

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:ringfence:attestation:run:v1"
"""A name (RFC 8141) and not an address: nothing is ever fetched from it."""
TREE = "tree"
MANIFEST = "tree.manifest"
PATCH = "work.patch"
MAX_LISTED = 1000
"""The largest number of entries in each list of the predicate except the files of the manifest."""
MAX_TEXT = 64 * 1024
"""The largest number of characters of a text."""
MAX_PROMPT = 1024**2
"""The largest number of characters of a prompt."""

_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_GitId = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_LISTED)]
_Counts = Annotated[dict[_Text, int], msgspec.Meta(max_length=MAX_LISTED)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all parts of a statement."""


class DigestSet(_Part, frozen=True, omit_defaults=True):
    """Digests of one thing. Source: https://github.com/in-toto/attestation/blob/v1.1.0/spec/v1/digest_set.md."""

    sha256: _Sha256 | None = None
    git_tree: _GitId | None = None
    git_commit: _GitId | None = None


class Subject(_Part, frozen=True):
    """A thing that the statement is about: `tree`, `tree.manifest`, `work.patch`."""

    name: _Text
    digest: DigestSet


class Run(_Part, frozen=True):
    """The run, and how it ended."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z-]{1,100}$")]
    state: _Text
    exit_code: int
    started_at: _Time
    ended_at: _Time
    turns: int
    tool_calls: int


class Source(_Part, frozen=True):
    """Where the work began."""

    repository: _Text | None
    """The address of the remote `origin`, without credentials; null if there is none, or the record has none."""
    commit: DigestSet | None
    """The commit of HEAD when the run began."""
    tree: DigestSet
    """Git's id of the files that the run began with, uncommitted changes included."""


class Changes(_Part, frozen=True):
    """The size of the difference between `source.tree` and the resulting tree."""

    files: int
    insertions: int
    deletions: int


class Manifest(_Part, frozen=True):
    """The files of the resulting tree."""

    files: Annotated[tuple[FileEntry, ...], msgspec.Meta(max_length=MAX_FILES)]
    uncovered: _Texts
    """Paths that no snapshot covers, such as files of more than 100 MiB; directories end in a slash."""


class Check(_Part, frozen=True):
    """The check of the run, in a sandbox of its own."""

    command: _Text
    passed: bool
    exit_code: int
    ended_by: _Text
    runner: _Text | None
    """The test runner whose report was read; null if only the exit code counted."""
    tests: _Counts
    """The number of tests by outcome."""
    canary: bool
    caveats: _Texts
    tree: DigestSet
    """Git's id of the files that were checked. It differs from the resulting tree if the check itself changed files."""


class Command(_Part, frozen=True, omit_defaults=True):
    """The command of `ringfence exec` or `shell`, which is the run's work."""

    sha256: _Sha256
    """Of the arguments, each followed by NUL."""
    exit_code: int
    ended_by: _Text
    arguments: _Texts | None = None
    """Only on request (`--with-prompt`)."""


class Agent(_Part, frozen=True):
    """The agent and its task."""

    runtime: _Text
    toolset: _Text
    model: _Text
    """As requested."""
    models: _Texts
    """The models that requests named, as the gateway saw them."""
    client: _Text | None
    """Name and version of the agent CLI."""


class Prompt(_Part, frozen=True, omit_defaults=True):
    """The task. Its text is present only on request."""

    sha256: _Sha256
    text: Annotated[str, msgspec.Meta(max_length=MAX_PROMPT)] | None = None


class SandboxFacts(_Part, frozen=True):
    """One sandbox of the run."""

    purpose: _Text
    backend: _Text
    image: _Text | None
    engine: _Text | None
    network: _Text
    egress: _Texts
    """The rules for hosts on the web."""
    forwards: int
    mounts: int
    """The number of forwarded services, and of directories from the host beside the workspace."""
    limits: Annotated[dict[_Text, float | None], msgspec.Meta(max_length=MAX_LISTED)]
    enforced: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=MAX_LISTED)]
    """How each limit was enforced: `kernel`, `soft` or `none`."""
    policy_sha256: _Sha256
    """Of the whole policy in the record, as JSON with sorted keys and without spaces."""


class Policy(_Part, frozen=True):
    """What the run was permitted."""

    configuration_sha256: _Sha256
    """Of the effective configuration in the record, as JSON with sorted keys and without spaces."""
    loosened: _Texts
    """Each default of the fence that was loosened, in a sentence."""


class Journal(_Part, frozen=True):
    """The journal from which all of this was read, and its seal."""

    format: int
    lines: int
    """The number of lines, the seal included."""
    head: _Sha256
    """The SHA-256 of the line before the seal; it covers all lines."""
    sealed_at: Annotated[str, msgspec.Meta(pattern="^[0-9TZ:.-]{1,40}$")]
    """The time of the seal, as the seal's signature covers it."""
    public_key: _Sha256
    signature: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]
    """The ed25519 key and signature of the seal, in hexadecimal."""


class Predicate(_Part, frozen=True):
    """The predicate. docs/reference/attestation.md names the source of each field."""

    issued_at: _Time
    version: _Text
    """The version of ringfence that wrote the statement."""
    run: Run
    source: Source
    changes: Changes | None
    manifest: Manifest
    check: Check | None
    command: Command | None
    agent: Agent
    prompt: Prompt
    sandboxes: Annotated[tuple[SandboxFacts, ...], msgspec.Meta(max_length=MAX_LISTED)]
    policy: Policy
    journal: Journal
    omitted: _Texts
    """What the record does not hold, in a sentence each."""


class Statement(_Part, frozen=True):
    """An in-toto statement about one run."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: Annotated[tuple[Subject, ...], msgspec.Meta(min_length=2, max_length=3)]
    predicate_type: Literal["urn:ringfence:attestation:run:v1"]
    predicate: Predicate

    def digest_of(self, name: str) -> DigestSet | None:
        """Return the digest of a subject; None without the subject."""
        return next((each.digest for each in self.subject if each.name == name), None)


def encode_statement(statement: Statement) -> bytes:
    """Return the payload to sign.

    Raises:
        RecordError: A verifier would refuse it: it exceeds a bound.
    """
    payload = msgspec.json.encode(statement)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise RecordError(
            f"the statement would have {len(payload)} bytes, more than {MAX_PAYLOAD_BYTES}: the tree has too many files"
        )
    try:
        _check_statement(msgspec.json.decode(payload, type=Statement))
    except ValueError as exc:
        raise RecordError(f"run {statement.predicate.run.id!r} cannot be attested: {exc}") from exc
    return payload


def parse_statement(payload: bytes, *, name: str) -> Statement:
    """Parse the payload of an envelope.

    Args:
        payload: The bytes that were signed.
        name: The file's name, for errors.

    Raises:
        ConfigurationError: It is not a statement of this version, or exceeds a bound.
    """
    try:
        # The typed parser comes first: it never builds values that a statement cannot have.
        statement = msgspec.json.decode(payload, type=Statement)
        _check_statement(statement)
        STRICT_DECODER.decode(payload.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(
            f"the statement in {name!r} cannot be used: {exc}; use the version of ringfence that wrote it"
        ) from exc
    return statement


def _check_statement(statement: Statement) -> None:
    names = [each.name for each in statement.subject]
    if names not in ([TREE, MANIFEST], [TREE, MANIFEST, PATCH]):
        raise ValueError(f"its subjects are {', '.join(names)[:200]!r}")
    files = statement.predicate.manifest.files
    check_files(files)
    predicate = statement.predicate
    for moment in (predicate.issued_at, predicate.run.started_at, predicate.run.ended_at):
        if moment.utcoffset() != timedelta():
            raise ValueError(f"the time {moment.isoformat()} is not in UTC")
    for path in statement.predicate.manifest.uncovered:
        decode_gap(path)
    found = statement.digest_of(MANIFEST)
    if found is None or found.sha256 != digest_files(files):
        raise ValueError("the digest of its manifest is not that of its files")
