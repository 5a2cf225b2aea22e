"""Whether a record is what was written: its journal, its bodies, its other files, and its place in the chain.

Streams: memory does not grow with the journal.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from ringfence.errors import RecordError
from ringfence.events import FilesRecorded, JournalOpened, JournalSealed
from ringfence.frozen import frozen
from ringfence.journal.blobs import BlobStore, references
from ringfence.journal.chain import known_heads
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
    "Whoever has the signing key can write a record anew, with a valid seal.",
    "The directories that a run worked in (its clone, its git directory) are no part of its record.",
)
"""What the verification of a record cannot show."""

_OPENED = "journal.opened"
_SEALED = "journal.sealed"
_FILES = "files.recorded"
_SPECIAL = frozenset({_OPENED, _FILES, _SEALED})

Heads = Callable[[str], Mapping[int, str]]
"""Gives the heads of a run that the chain knows, by sequence number."""


@frozen
class Finding:
    """Something that the verification found, or that it cannot show."""

    kind: Kind
    """`broken`: a line of the journal or of the chain is not what was written. `truncated`: lines at its end are
    missing. `changed`, `missing`: a file of the record. `unknown`: a file that was added. `unlisted`: a sealed record
    that the chain does not know. `unsealed`: nothing proves the end. `uncovered`: a file that the seal does not cover.
    `unreadable`: a line of the chain that a crash may have torn."""
    path: Path
    message: str
    is_fault: bool = True
    """False: the record is what was written as far as it can be shown; this is what cannot."""


@frozen
class Verification:
    """What `verify_run` found.

    `sealed`: every line and file is as it was written, and the end is signed. `open`: in order, but nothing proves
    the end (a run that goes on, or was killed). `truncated`: in order, but the chain knows of later lines. `broken`: the
    line `bad_line`, or a file of the record (then it is None), is not what was written.
    """

    path: Path
    """The journal."""
    status: Status
    run_id: str | None
    events: int
    """Whole lines in order, up to the first bad one."""
    findings: tuple[Finding, ...] = ()
    bad_line: int | None = None
    """1-based."""
    signer: str | None = None
    """Key id of the seal."""
    sealed_at: str | None = None
    torn_bytes: int = 0
    """Length of a last line that has no end."""

    @property
    def ok(self) -> bool:
        """Whether it is sealed and nothing is wrong."""
        return self.status == "sealed"

    @property
    def reason(self) -> str | None:
        """What is wrong, or why the end is not proved; None if the record is sealed, or its run goes on."""
        wrong = [one.message for one in self.findings if one.is_fault]
        return "; ".join(wrong or [one.message for one in self.findings if one.kind == "unsealed"]) or None


@frozen
class Tail:
    """Where a journal ends, for its writer."""

    size: int
    next_seq: int
    head: str
    run_id: str | None = None
    torn_bytes: int = 0
    torn_sha256: str = ""

    @classmethod
    def empty(cls) -> "Tail":
        """The tail of a journal without lines."""
        return cls(size=0, next_seq=0, head=GENESIS)

    def after(self, digest: str, length: int) -> "Tail":
        """The tail when one line more was written."""
        return replace(self, size=self.size + length, next_seq=self.next_seq + 1, head=digest)


def verify_run(path: Path, *, public_keys: Collection[str] | None = None) -> Verification:
    """Check every line of a journal, the bodies beside it, its seal, its place in the chain, and the record's files.

    Args:
        path: The directory of a run; or a journal alone, whose record's other files are then not checked.
        public_keys: Trusted keys in hexadecimal; None takes those of the state directory.

    The directory of a run without a journal is `truncated` where the chain knows the run.

    Raises:
        RecordError: There is no journal at `path`, or a file of keys is damaged.
        InfrastructureFault: The chain cannot be read.
    """
    return _verify(path, trusted_ids(public_keys), known_heads)


def tail_of(path: Path) -> tuple[Tail, frozenset[str]]:
    """Where an open-ended journal ends, after checking it, and the bodies that its lines refer to.

    Raises:
        RecordError: Nothing can be added to it: it is sealed, broken, truncated or absent.
    """
    walk = _Walk(path, trusted_keys(), known_heads)
    try:
        walk.run()
    except _BrokenError as exc:
        raise RecordError(
            f"the journal {str(path)!r} is broken at line {walk.tail.next_seq + 1}: {exc}"
        ) from exc
    found = walk.outcome()
    if found.status != "open":
        raise RecordError(f"the journal {str(path)!r} is {found.status}, so nothing can be added to it")
    return walk.tail, frozenset(walk.bodies)


def trusted_ids(public_keys: Collection[str] | None) -> frozenset[str]:
    """The public keys to trust: these, or, for None, those of the state directory."""
    return trusted_keys() if public_keys is None else frozenset(public_keys)


def _verify(path: Path, trusted: frozenset[str], heads_of: Heads) -> Verification:
    with_files, path = path.is_dir(), journal_path(path)
    if with_files and not os.path.lexists(path) and heads_of(path.parent.name):
        finding = Finding("truncated", path, "the journal was removed")
        return Verification(path, "truncated", path.parent.name, 0, (finding,))
    walk = _Walk(path, trusted, heads_of, with_files)
    try:
        walk.run()
    except _BrokenError as exc:
        finding = Finding("broken", path, str(exc))
        return walk.result("broken", finding, bad_line=walk.tail.next_seq + 1)
    return walk.outcome()


def verify_among(path: Path, trusted: frozenset[str], heads_of: Heads) -> Verification:
    """Verify one record of several: what cannot be read of one says nothing of the others."""
    try:
        return _verify(path, trusted, heads_of)
    except RecordError as exc:
        journal = path / JOURNAL_NAME
        return Verification(journal, "broken", path.name, 0, (Finding("broken", journal, str(exc)),))


class _BrokenError(Exception):
    """The line after those counted so far is not what was written there."""


@dataclass
class _Walk:
    path: Path
    trusted: frozenset[str]
    heads_of: Heads
    with_files: bool = False
    tail: Tail = field(default_factory=Tail.empty)
    heads: Mapping[int, str] = field(default_factory=dict)
    files: FilesRecorded = field(default_factory=lambda: FilesRecorded(files={}))
    """The digests of the record's other files."""
    seal: Header | None = None
    bodies: set[str] = field(default_factory=set)
    """Digests of those that were checked."""

    def run(self) -> None:
        try:
            with self.path.open("rb") as file:
                self._read(file)
        except OSError as exc:
            raise RecordError(f"the journal {str(self.path)!r} cannot be read: {exc.strerror}") from exc

    def _read(self, file: BinaryIO) -> None:
        run_id: str | None = None
        seq, size, prev = 0, 0, GENESIS
        readline = file.readline
        try:
            while line := readline(MAX_LINE_BYTES + 1):
                if line[-1] != 10:
                    self._unended(line)
                    torn = (len(line), sha256(line).hexdigest())
                    break
                header = self._in_order(line, seq, prev)
                if seq == 0:
                    run_id = self._open(header)
                if header.event in _SPECIAL:
                    self._special(line, header, seq, run_id or "")
                if b'$blob"' in line:
                    self._bodies(header)
                digest = sha256(line).hexdigest()
                if seq in self.heads and self.heads[seq] != digest:
                    raise _BrokenError("the chain knows another line here: lines up to here were replaced")
                seq, size, prev = seq + 1, size + len(line), digest
            else:
                torn = (0, "")
        finally:
            self.tail = Tail(size, seq, prev, run_id)
        self.tail = replace(self.tail, torn_bytes=torn[0], torn_sha256=torn[1])

    def outcome(self) -> Verification:
        if self.tail.next_seq == 0:
            # No line says whose it was; what is in a run's directory is that run's.
            self.heads = self.heads_of(self.path.absolute().parent.name)
        last_known = max(self.heads, default=-1)
        if last_known >= self.tail.next_seq:
            missing = last_known + 1 - self.tail.next_seq
            finding = Finding("truncated", self.path, f"{missing} lines at the end were cut off")
            return self.result("truncated", finding)
        if self.seal is not None:
            return self._sealed()
        torn = self.tail.torn_bytes
        if not torn:
            return self.result("open")
        reason = f"its last line is torn: {torn} bytes without an end"
        return self.result("open", Finding("unsealed", self.path, reason, is_fault=False))

    def _sealed(self) -> Verification:
        found = list(self._beside()) if self.with_files else []
        is_broken = any(one.is_fault for one in found)
        return self.result("broken" if is_broken else "sealed", *found)

    def result(self, status: Status, *findings: Finding, bad_line: int | None = None) -> Verification:
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

    def _in_order(self, line: bytes, seq: int, prev: str) -> Header:
        if self.seal is not None:
            raise _BrokenError("there is a line after the seal")
        try:
            header = decode_header(line)
        except ValueError as exc:
            raise _BrokenError(f"it is no line of a journal: {exc}") from exc
        if header.seq != seq:
            raise _BrokenError(
                f"number {header.seq} stands where {seq} is due: lines were dropped, inserted or reordered"
            )
        if header.prev != prev:
            raise _BrokenError(
                "it does not follow from the line before: that line was edited, or lines were dropped, "
                "inserted or reordered"
            )
        return header

    def _unended(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise _BrokenError(f"it is longer than {MAX_LINE_BYTES} bytes")
        if self.seal is not None:
            raise _BrokenError("there are bytes after the seal")

    def _open(self, header: Header) -> str:
        if header.event != _OPENED:
            raise _BrokenError(f"a journal begins with {_OPENED!r}, not {header.event!r}")
        try:
            opened = msgspec.json.decode(header.data, type=JournalOpened)
        except (ValueError, RecursionError) as exc:
            raise _BrokenError(f"its {_OPENED!r} does not parse: {exc}") from exc
        if opened.format != FORMAT:
            raise _BrokenError(f"format {opened.format!r} is not known here; take a newer ringfence")
        home = self.path.absolute().parent
        if home.parent == runs_dir() and home.name != opened.run_id:
            raise _BrokenError(f"it is the journal of another run: {opened.run_id!r}")
        self.heads = self.heads_of(opened.run_id)
        return opened.run_id

    def _special(self, line: bytes, header: Header, seq: int, run_id: str) -> None:
        if header.event == _OPENED:
            if seq:
                raise _BrokenError(f"{_OPENED!r} stands in the middle")
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

    def _bodies(self, header: Header) -> None:
        store = BlobStore(self.path.parent / BLOBS_NAME)
        try:
            for ref in references(header.data):
                if ref.digest not in self.bodies:
                    store.check(ref)
                    self.bodies.add(ref.digest)
        except RecordError as exc:
            raise _BrokenError(str(exc)) from exc

    def _beside(self) -> Iterator[Finding]:
        """What is wrong with the files beside a sealed journal, and which of them its seal does not cover."""
        run_dir = self.path.parent
        there = {entry.name: entry for entry in os.scandir(run_dir) if entry.name != JOURNAL_NAME}
        for name, digest in self.files.files.items():
            yield from self._listed(run_dir / name, digest)
            there.pop(name, None)
        for name, entry in sorted(there.items()):
            if name == BLOBS_NAME and entry.is_dir(follow_symlinks=False):
                yield from self._beside_bodies(run_dir / name)
            elif name in WORK_DIRECTORIES and entry.is_dir(follow_symlinks=False):
                continue
            elif not entry.is_file(follow_symlinks=False):
                yield Finding("unknown", run_dir / name, f"{name!r} is not a file of the record")
            elif name != LOCK_NAME or entry.stat().st_size:
                yield self._unlisted(run_dir / name)

    def _listed(self, path: Path, digest: str) -> Iterator[Finding]:
        name = path.name
        if path.parent != self.path.parent or name == JOURNAL_NAME:
            yield Finding(
                "broken", self.path, f"the journal lists {str(path)!r}, which is no file of the record"
            )
            return
        try:
            found = digest_of_file(path)
        except FileNotFoundError:
            # It is written after the seal; on a full disk it is not.
            is_session = name == session_name(self.tail.run_id or "")
            advice = "; it can be written again from the journal" if is_session else ""
            message = f"{name!r} is missing; the journal lists it{advice}"
            yield Finding("missing", path, message, is_fault=not is_session)
        except OSError as exc:
            yield Finding("changed", path, f"the file {name!r} of the record cannot be read: {exc.strerror}")
        else:
            if found != digest:
                message = f"{name!r} does not match its SHA-256 in the journal: it was changed after the seal"
                yield Finding("changed", path, message)

    def _unlisted(self, path: Path) -> Finding:
        name = path.name
        if name in (WORK_NAME, *LATER_NAMES) or PARTIAL_NAME.fullmatch(name):
            message = f"{name!r} was written after the seal, which does not cover it"
            return Finding("uncovered", path, message, is_fault=False)
        if not self.files.is_complete:
            message = f"{name!r} is not covered by the seal of this record"
            return Finding("uncovered", path, message, is_fault=False)
        return Finding("unknown", path, f"{name!r} was added after the seal: the journal does not list it")

    def _beside_bodies(self, blobs: Path) -> Iterator[Finding]:
        for name in sorted(set(os.listdir(blobs)) - self.bodies):  # noqa: PTH208 -- names, not paths
            kind: Kind = "unknown" if self.files.is_complete else "uncovered"
            message = f"no line of the journal refers to the body {name!r}"
            yield Finding(kind, blobs / name, message, is_fault=self.files.is_complete)
