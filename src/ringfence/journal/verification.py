"""Verifies the record of a run: its journal, its blobs, its other files, and its entries in the chain.

The journal is streamed, so memory use does not grow with its length.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from ringfence.errors import RecordError
from ringfence.events import FilesRecorded, JournalOpened, JournalSealed
from ringfence.frozen import frozen
from ringfence.journal.blobs import BlobStore, references
from ringfence.journal.chain import known_heads
from ringfence.journal.disk import is_alive
from ringfence.journal.layout import (
    BLOBS_NAME,
    JOURNAL_NAME,
    LATER_NAMES,
    LOCK_NAME,
    PARTIAL_NAME,
    WORK_DIRECTORIES,
    WORK_NAME,
    digest_of_file,
    journal_path,
    open_regular,
    runs_dir,
    session_name,
)
from ringfence.journal.record import FORMAT, GENESIS, MAX_LINE_BYTES, Header, decode_header, format_time
from ringfence.journal.seal import key_id, seal_fault, trusted_keys

Status = Literal["sealed", "open", "truncated", "broken"]
Kind = Literal[
    "broken", "truncated", "changed", "missing", "unknown", "unlisted", "unsealed", "uncovered", "unreadable"
]

RECORD_LIMITS = (
    "A holder of the signing key can write a record anew, with a valid seal.",
    "The directories that a run worked in (its clone, its git directory) are no part of its record.",
)
"""Statements about a record that its verification cannot prove."""

_OPENED = "journal.opened"
_SEALED = "journal.sealed"
_FILES = "files.recorded"
_SPECIAL = frozenset({_OPENED, _FILES, _SEALED})

Heads = Callable[[str], Mapping[int, str]]
"""A function that returns the heads of a run in the chain, by sequence number."""


@frozen
class Finding:
    """A fault that the verification found, or something that it cannot prove."""

    kind: Kind
    """`broken`: a line of the journal or of the chain was changed. `truncated`: lines at the end of the journal are
    missing. `changed`, `missing`: a file of the record was changed or is missing. `unknown`: a file was added.
    `unlisted`: the chain has no entry for a sealed record. `unsealed`: the end of the journal is not signed.
    `uncovered`: the seal does not cover a file. `unreadable`: a line of the chain does not parse, perhaps because of a
    crash."""
    path: Path
    message: str
    is_fault: bool = True
    """Whether the record is damaged. False: the finding names something that cannot be proved."""


@frozen
class Verification:
    """The result of `verify_run`.

    `sealed`: every line and file is unchanged, and the end is signed. `open`: all lines are in order, but the end is
    not signed, because the run is alive or was killed. `truncated`: all lines are in order, but the chain records later
    ones. `broken`: the line `bad_line` was changed or, if that is None, a file of the record.
    """

    path: Path
    """The path of the journal."""
    status: Status
    run_id: str | None
    events: int
    """The number of complete lines before the first bad one."""
    findings: tuple[Finding, ...] = ()
    bad_line: int | None = None
    """The number of the bad line, counted from 1."""
    signer: str | None = None
    """The id of the key that made the seal."""
    sealed_at: str | None = None
    torn_bytes: int = 0
    """The length of an incomplete last line."""

    @property
    def ok(self) -> bool:
        """Whether the record is sealed and unchanged."""
        return self.status == "sealed"

    @property
    def reason(self) -> str | None:
        """The faults, or the reason why the end is not signed; None if the record is sealed or the run is alive."""
        faults = [finding.message for finding in self.findings if finding.is_fault]
        unsealed = [finding.message for finding in self.findings if finding.kind == "unsealed"]
        return "; ".join(faults or unsealed) or None


@frozen
class Tail:
    """The end of a journal, at which its writer continues."""

    size: int
    next_seq: int
    head: str
    run_id: str | None = None
    torn_bytes: int = 0
    torn_sha256: str = ""

    @classmethod
    def empty(cls) -> "Tail":
        """Return the tail of a journal without lines."""
        return cls(size=0, next_seq=0, head=GENESIS)

    def after(self, digest: str, length: int) -> "Tail":
        """Return the tail after one more line."""
        return replace(self, size=self.size + length, next_seq=self.next_seq + 1, head=digest)


def verify_run(path: Path, *, public_keys: Collection[str] | None = None) -> Verification:
    """Check every line of a journal, its blobs, its seal, its entries in the chain, and the record's other files.

    Args:
        path: The directory of a run, or a journal file; with a file, the record's other files are not checked.
        public_keys: Trusted keys in hexadecimal; None stands for those of the state directory.

    If a run's directory has no journal and the chain has entries of the run, its status is `truncated`.

    Raises:
        RecordError: There is no journal at `path`, or a file of keys is damaged.
        InfrastructureFault: The chain cannot be read.
    """
    return _verify(path, trusted_ids(public_keys), known_heads)


def describe_verification(found: Verification) -> dict[str, object]:
    """Return a verification as data for JSON, with what it cannot prove."""
    return {
        **asdict(found),
        "path": str(found.path),
        "is_running": found.status == "open" and is_alive(found.path.parent),
        "findings": [describe_finding(one) for one in found.findings],
        "reason": found.reason,
        "limits": RECORD_LIMITS,
    }


def describe_finding(finding: Finding) -> dict[str, object]:
    """Return a finding as data for JSON."""
    return {**asdict(finding), "path": str(finding.path)}


def read_tail(path: Path) -> tuple[Tail, frozenset[str]]:
    """Check an open-ended journal; return its tail and the digests of the blobs that its lines refer to.

    Raises:
        RecordError: The journal cannot be continued: it is sealed, broken, truncated or absent.
    """
    walk = _Walk(path, trusted_keys(), known_heads)
    found = walk.verify()
    if found.status != "open":
        line = f" at line {found.bad_line}" if found.bad_line is not None else ""
        reason = f"{line}: {found.reason}" if found.reason else ""
        raise RecordError(f"the journal {str(path)!r} is {found.status}{reason}; nothing can be added to it")
    return walk.tail, frozenset(walk.blobs)


def trusted_ids(public_keys: Collection[str] | None) -> frozenset[str]:
    """Return `public_keys`, or the keys of the state directory for None."""
    return trusted_keys() if public_keys is None else frozenset(public_keys)


def _verify(path: Path, trusted: frozenset[str], heads_of: Heads) -> Verification:
    with_files, path = path.is_dir(), journal_path(path)
    if with_files and not os.path.lexists(path) and heads_of(path.parent.name):
        finding = Finding("truncated", path, "the journal was removed")
        return Verification(path, "truncated", path.parent.name, 0, (finding,))
    return _Walk(path, trusted, heads_of, with_files).verify()


def verify_among(path: Path, trusted: frozenset[str], heads_of: Heads) -> Verification:
    """Verify one record of several. A record that cannot be read counts as broken instead of raising an error."""
    try:
        return _verify(path, trusted, heads_of)
    except RecordError as exc:
        journal = path / JOURNAL_NAME
        return Verification(journal, "broken", path.name, 0, (Finding("broken", journal, str(exc)),))


class _BrokenError(Exception):
    """The line that follows the counted ones was changed."""


@dataclass
class _Walk:
    """One pass over the lines of a journal."""

    path: Path
    trusted: frozenset[str]
    heads_of: Heads
    with_files: bool = False
    tail: Tail = field(default_factory=Tail.empty)
    heads: Mapping[int, str] = field(default_factory=dict)
    files: FilesRecorded = field(default_factory=lambda: FilesRecorded(files={}))
    """The digests of the record's other files."""
    seal: Header | None = None
    blobs: set[str] = field(default_factory=set)
    """Digests of the blobs that were checked."""

    def verify(self) -> Verification:
        """Read the journal once and return what was found.

        Raises:
            RecordError: The journal cannot be read.
        """
        try:
            with open_regular(self.path) as file:
                self._read(file)
        except OSError as exc:
            raise RecordError(f"the journal {str(self.path)!r} cannot be read: {exc.strerror}") from exc
        except _BrokenError as exc:
            finding = Finding("broken", self.path, str(exc))
            return self._result("broken", finding, bad_line=self.tail.next_seq + 1)
        return self._result_of_sound_lines()

    def _read(self, file: BinaryIO) -> None:
        run_id: str | None = None
        seq, size, prev = 0, 0, GENESIS
        readline = file.readline
        try:
            while line := readline(MAX_LINE_BYTES + 1):
                if line[-1] != 10:
                    self._check_incomplete(line)
                    torn = (len(line), sha256(line).hexdigest())
                    break
                header = self._read_header(line, seq, prev)
                if seq == 0:
                    run_id = self._read_opening(header)
                if header.event in _SPECIAL:
                    self._read_special(line, header, seq, run_id or "")
                if b'$blob"' in line:
                    self._verify_blobs(header)
                digest = sha256(line).hexdigest()
                if seq in self.heads and self.heads[seq] != digest:
                    raise _BrokenError(
                        "the chain records another line here: this line or earlier ones were replaced"
                    )
                seq, size, prev = seq + 1, size + len(line), digest
            else:
                torn = (0, "")
        finally:
            self.tail = Tail(size, seq, prev, run_id)
        self.tail = replace(self.tail, torn_bytes=torn[0], torn_sha256=torn[1])

    def _result_of_sound_lines(self) -> Verification:
        if self.tail.next_seq == 0:
            # No line names the run, so the name of the directory does.
            self.heads = self.heads_of(self.path.absolute().parent.name)
        last_known = max(self.heads, default=-1)
        if last_known >= self.tail.next_seq:
            missing = last_known + 1 - self.tail.next_seq
            finding = Finding("truncated", self.path, f"{missing} lines at the end were cut off")
            return self._result("truncated", finding)
        if self.seal is not None:
            return self._sealed_result()
        torn = self.tail.torn_bytes
        if not torn:
            return self._result("open")
        reason = f"its last line is torn: {torn} bytes without an end"
        return self._result("open", Finding("unsealed", self.path, reason, is_fault=False))

    def _sealed_result(self) -> Verification:
        findings = list(self._check_files()) if self.with_files else []
        is_broken = any(finding.is_fault for finding in findings)
        return self._result("broken" if is_broken else "sealed", *findings)

    def _result(self, status: Status, *findings: Finding, bad_line: int | None = None) -> Verification:
        signer = sealed_at = None
        if self.seal is not None:
            signer = key_id(msgspec.json.decode(self.seal.data, type=JournalSealed).public_key)
            sealed_at = format_time(self.seal.time)
        return Verification(
            path=self.path,
            status=status,
            run_id=self.tail.run_id,
            events=self.tail.next_seq,
            findings=findings,
            bad_line=bad_line,
            signer=signer,
            sealed_at=sealed_at,
            torn_bytes=self.tail.torn_bytes,
        )

    def _read_header(self, line: bytes, seq: int, prev: str) -> Header:
        if self.seal is not None:
            raise _BrokenError("there is a line after the seal")
        try:
            header = decode_header(line)
        except ValueError as exc:
            raise _BrokenError(f"it is not a line of a journal: {exc}") from exc
        if header.seq != seq:
            raise _BrokenError(
                f"its number is {header.seq} instead of {seq}: lines were dropped, inserted or reordered"
            )
        if header.prev != prev:
            raise _BrokenError(
                "it does not follow from the previous line: that line was edited, or lines were dropped, "
                "inserted or reordered"
            )
        return header

    def _check_incomplete(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise _BrokenError(f"it is longer than {MAX_LINE_BYTES} bytes")
        if self.seal is not None:
            raise _BrokenError("there are bytes after the seal")

    def _read_opening(self, header: Header) -> str:
        if header.event != _OPENED:
            raise _BrokenError(f"a journal begins with {_OPENED!r}, not {header.event!r}")
        try:
            opened = msgspec.json.decode(header.data, type=JournalOpened)
        except (ValueError, RecursionError) as exc:
            raise _BrokenError(f"its {_OPENED!r} does not parse: {exc}") from exc
        if opened.format != FORMAT:
            raise _BrokenError(
                f"format {opened.format!r} is not known to this version; install a newer ringfence"
            )
        home = self.path.absolute().parent
        if home.parent == runs_dir() and home.name != opened.run_id:
            raise _BrokenError(f"it is the journal of another run: {opened.run_id!r}")
        self.heads = self.heads_of(opened.run_id)
        return opened.run_id

    def _read_special(self, line: bytes, header: Header, seq: int, run_id: str) -> None:
        if header.event == _OPENED:
            if seq:
                raise _BrokenError(f"{_OPENED!r} is not the first line")
            return
        if header.event == _FILES:
            try:
                self.files = msgspec.json.decode(header.data, type=FilesRecorded)
            except (ValueError, RecursionError) as exc:
                raise _BrokenError(f"its {_FILES!r} does not parse: {exc}") from exc
            return
        fault = seal_fault(line, header, run_id=run_id, trusted=self.trusted)
        if fault is not None:
            raise _BrokenError(fault)
        self.seal = header

    def _verify_blobs(self, header: Header) -> None:
        store = BlobStore(self.path.parent / BLOBS_NAME)
        try:
            for ref in references(header.data):
                if ref.digest not in self.blobs:
                    store.verify(ref)
                    self.blobs.add(ref.digest)
        except RecordError as exc:
            raise _BrokenError(str(exc)) from exc

    def _check_files(self) -> Iterator[Finding]:
        """Yield the faults of the files beside a sealed journal, and the files that its seal does not cover."""
        run_dir = self.path.parent
        entries = {entry.name: entry for entry in os.scandir(run_dir) if entry.name != JOURNAL_NAME}
        for name, digest in self.files.files.items():
            yield from self._check_listed(run_dir / name, digest)
            entries.pop(name, None)
        for name, entry in sorted(entries.items()):
            if name == BLOBS_NAME and entry.is_dir(follow_symlinks=False):
                yield from self._check_blob_names(run_dir / name)
            elif name in WORK_DIRECTORIES and entry.is_dir(follow_symlinks=False):
                continue
            elif not entry.is_file(follow_symlinks=False):
                yield Finding("unknown", run_dir / name, f"{name!r} is not a file of the record")
            elif name != LOCK_NAME or entry.stat().st_size:
                yield self._unlisted_finding(run_dir / name)

    def _check_listed(self, path: Path, digest: str) -> Iterator[Finding]:
        name = path.name
        if path.parent != self.path.parent or name == JOURNAL_NAME:
            yield Finding(
                "broken", self.path, f"the journal lists {str(path)!r}, which is not a file of the record"
            )
            return
        try:
            actual = digest_of_file(path)
        except FileNotFoundError:
            # The session file is written after the seal, which fails on a full disk.
            is_session = name == session_name(self.tail.run_id or "")
            advice = "; it can be written again from the journal" if is_session else ""
            message = f"{name!r} is missing; the journal lists it{advice}"
            yield Finding("missing", path, message, is_fault=not is_session)
        except OSError as exc:
            yield Finding("changed", path, f"the file {name!r} of the record cannot be read: {exc.strerror}")
        else:
            if actual != digest:
                message = f"{name!r} does not match its SHA-256 in the journal: it was changed after the seal"
                yield Finding("changed", path, message)

    def _unlisted_finding(self, path: Path) -> Finding:
        name = path.name
        if name in (WORK_NAME, *LATER_NAMES) or PARTIAL_NAME.fullmatch(name):
            message = f"{name!r} was written after the seal, which does not cover it"
            return Finding("uncovered", path, message, is_fault=False)
        if not self.files.is_complete:
            message = f"{name!r} is not covered by the seal of this record"
            return Finding("uncovered", path, message, is_fault=False)
        return Finding("unknown", path, f"{name!r} was added after the seal: the journal does not list it")

    def _check_blob_names(self, blobs: Path) -> Iterator[Finding]:
        for name in sorted(set(os.listdir(blobs)) - self.blobs):  # noqa: PTH208 -- names, not paths
            kind: Kind = "unknown" if self.files.is_complete else "uncovered"
            message = f"no line of the journal refers to the blob {name!r}"
            yield Finding(kind, blobs / name, message, is_fault=self.files.is_complete)
