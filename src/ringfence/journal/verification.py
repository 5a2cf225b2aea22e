"""Whether a journal is what was written. Streams: memory does not grow with the journal."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError
from ringfence.events import FilesRecorded, JournalOpened, JournalSealed
from ringfence.frozen import frozen
from ringfence.journal.blobs import BlobStore, references
from ringfence.journal.files import check
from ringfence.journal.heads import known_heads
from ringfence.journal.keys import key_id, trusted_keys
from ringfence.journal.record import (
    FORMAT,
    GENESIS,
    JOURNAL_NAME,
    MAX_LINE_BYTES,
    Header,
    decode_header,
    format_time,
)
from ringfence.journal.sealing import seal_fault

Status = Literal["sealed", "open", "truncated", "broken"]

_OPENED = "journal.opened"
_SEALED = "journal.sealed"
_FILES = "files.recorded"
_SPECIAL = frozenset({_OPENED, _FILES, _SEALED})


@frozen
class Verification:
    """What `verify` found.

    `sealed`: every line is as it was written, and the end is signed. `open`: in order, but nothing vouches
    for the end (a run that goes on, or was killed). `truncated`: in order, but the index of heads knows of
    later lines. `broken`: the line `bad_line`, or a file of the record (then it is None), is not what was written.
    """

    path: Path
    status: Status
    run_id: str | None
    events: int
    """Whole lines in order, up to the first bad one."""
    bad_line: int | None = None
    """1-based."""
    reason: str | None = None
    signer: str | None = None
    """Key id of the seal."""
    sealed_at: str | None = None
    torn_bytes: int = 0
    """Length of a last line that has no end."""

    @property
    def ok(self) -> bool:
        """Whether it is sealed and nothing is wrong."""
        return self.status == "sealed"


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


def verify(path: Path, *, public_keys: Collection[str] | None = None) -> Verification:
    """Check every line of a journal, the bodies beside it, its seal and its place in the index of heads.

    Args:
        path: The journal; or the directory of a run, whose other files are then checked, too.
        public_keys: Trusted keys in hexadecimal; None takes those of the state directory.

    The directory of a run without a journal is `truncated` where the index of heads knows the run.

    Raises:
        RecordError: There is no journal at `path`, or a file of keys is damaged.
        InfrastructureFault: The index of heads cannot be read.
    """
    with_files, path = path.is_dir(), journal_path(path)
    if with_files and not path.exists() and known_heads(path.parent.name):
        return Verification(path, "truncated", path.parent.name, 0, reason="the journal was removed")
    walk = _Walk(path, None if public_keys is None else frozenset(public_keys), with_files)
    try:
        walk.run()
    except _BrokenError as exc:
        return walk.result("broken", bad_line=walk.tail.next_seq + 1, reason=str(exc))
    return walk.outcome()


def tail_of(path: Path) -> Tail:
    """Where an open-ended journal ends, after checking it.

    Raises:
        RecordError: It cannot be gone on with: sealed, broken, truncated or absent.
    """
    walk = _Walk(path, None)
    try:
        walk.run()
    except _BrokenError as exc:
        raise RecordError(
            f"the journal {str(path)!r} is broken at line {walk.tail.next_seq + 1}: {exc}"
        ) from exc
    found = walk.outcome()
    if found.status != "open":
        raise RecordError(f"the journal {str(path)!r} is {found.status}, so nothing can be added to it")
    return walk.tail


def journal_path(path: Path) -> Path:
    """The journal in a run's directory, or the path itself."""
    return path / JOURNAL_NAME if path.is_dir() else path


class _BrokenError(Exception):
    """The line after those counted so far is not what was written there."""


@dataclass
class _Walk:
    path: Path
    public_keys: frozenset[str] | None
    with_files: bool = False
    tail: Tail = field(default_factory=Tail.empty)
    heads: Mapping[int, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """The digests of the record's other files."""
    seal: Header | None = None
    checked_bodies: set[str] = field(default_factory=set)

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
                    raise _BrokenError(
                        "the index of heads knows another line here: lines up to here were replaced"
                    )
                seq, size, prev = seq + 1, size + len(line), digest
            else:
                torn = (0, "")
        finally:
            self.tail = Tail(size, seq, prev, run_id)
        self.tail = replace(self.tail, torn_bytes=torn[0], torn_sha256=torn[1])

    def outcome(self) -> Verification:
        if self.tail.next_seq == 0:
            # No line says whose it was; what is in a run's directory is that run's.
            self.heads = known_heads(self.path.absolute().parent.name)
        last_known = max(self.heads, default=-1)
        if last_known >= self.tail.next_seq:
            missing = last_known + 1 - self.tail.next_seq
            return self.result("truncated", reason=f"{missing} lines at the end were cut off")
        if self.seal is not None:
            return self._sealed()
        torn = self.tail.torn_bytes
        reason = f"its last line is torn: {torn} bytes without an end" if torn else None
        return self.result("open", reason=reason)

    def _sealed(self) -> Verification:
        try:
            if self.with_files:
                check(self.path.parent, self.files)
        except RecordError as exc:
            return self.result("broken", reason=str(exc))
        return self.result("sealed")

    def result(
        self, status: Status, *, bad_line: int | None = None, reason: str | None = None
    ) -> Verification:
        signer = sealed_at = None
        if self.seal is not None:
            signer = key_id(msgspec.json.decode(self.seal.data, type=JournalSealed).public_key)
            sealed_at = format_time(self.seal.time)
        return Verification(
            path=self.path,
            status=status,
            run_id=self.tail.run_id,
            events=self.tail.next_seq,
            bad_line=bad_line,
            reason=reason,
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
        if home.parent == state_dir() / "runs" and home.name != opened.run_id:
            raise _BrokenError(f"it is the journal of another run: {opened.run_id!r}")
        self.heads = known_heads(opened.run_id)
        return opened.run_id

    def _special(self, line: bytes, header: Header, seq: int, run_id: str) -> None:
        if header.event == _OPENED:
            if seq:
                raise _BrokenError(f"{_OPENED!r} stands in the middle")
            return
        if header.event == _FILES:
            try:
                self.files = msgspec.json.decode(header.data, type=FilesRecorded).files
            except (ValueError, RecursionError) as exc:
                raise _BrokenError(f"its {_FILES!r} does not parse: {exc}") from exc
            return
        trusted = trusted_keys() if self.public_keys is None else self.public_keys
        fault = seal_fault(line, header, run_id=run_id, trusted=trusted)
        if fault is not None:
            raise _BrokenError(fault)
        self.seal = header

    def _bodies(self, header: Header) -> None:
        store = BlobStore(self.path.parent / "blobs")
        try:
            for ref in references(header.data):
                if ref.digest not in self.checked_bodies:
                    store.check(ref)
                    self.checked_bodies.add(ref.digest)
        except RecordError as exc:
            raise _BrokenError(str(exc)) from exc
