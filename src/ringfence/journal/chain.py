"""The chain of a state directory: which records there are, how far each journal came, and which were removed.

A journal whose last lines were cut off is in order as far as it goes, and a directory that was removed leaves nothing
behind. The file `heads` tells both: it has a signed entry for each time that a journal was sealed or closed and for each
record that a command removed. An entry carries the hash of everything since the entry before began, so that none can be
edited, dropped or inserted unnoticed. What nothing in it shows is that its last entries were cut off.

Entries of version 0.1 are signed, but not chained: the first entry that is chained covers them all.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.journal.record import format_time
from ringfence.journal.seal import is_signed, signing_key, trusted_keys

_MAX_LINE_BYTES = 4096
_TAIL_BYTES = 64 * 1024


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last line of a journal when its writer closed it; or, with `removed_by`, the removal of a record."""

    run_id: str
    seq: int
    head: str
    public_key: str
    signature: str
    prev: str | None = None
    """SHA-256 of all since the last chained entry began; None in entries of version 0.1."""
    time: str = ""
    removed_by: str = ""

    def message(self) -> bytes:
        """The bytes that the entry signs."""
        if self.prev is None:
            return f"ringfence journal head v1\n{self.run_id}\n{self.seq}\n{self.head}\n".encode()
        fields = (self.run_id, str(self.seq), self.head, self.prev, self.time, self.removed_by)
        return "\n".join(("ringfence journal chain v2", *fields, "")).encode()


@frozen
class Link:
    """One line of the chain."""

    number: int
    """1-based."""
    entry: Entry | None
    """None: the line does not parse."""
    is_in_order: bool
    """Whether its `prev` is right; an entry of version 0.1 has none."""
    head: str
    """The hash that an entry after this line carries."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def chain_path() -> Path:
    """The file of the chain."""
    return state_dir() / "heads"


def record_head(run_id: str, *, seq: int, head: str) -> None:
    """Append how far a journal came; on the disk when this returns.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    _record([(run_id, seq, head, "")])


def record_removals(run_ids: Iterable[str], *, by: str) -> None:
    """Append that records are removed, before they are; on the disk when this returns.

    Runs that the chain does not know, or knows to be removed, are left out.

    Args:
        run_ids: The runs.
        by: The command that removes them.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    last: dict[str, Entry] = {
        link.entry.run_id: link.entry for link in read_chain() if link.entry is not None
    }
    known = [run_id for run_id in run_ids if run_id in last and not last[run_id].removed_by]
    if known:
        _record([(run_id, -1, "", by) for run_id in known])


def known_heads(run_id: str) -> Mapping[int, str]:
    """The heads of a run by sequence number; entries without a trusted signature do not count."""
    entries = [link.entry for link in read_chain() if link.entry is not None and link.entry.run_id == run_id]
    trusted = trusted_keys() if entries else frozenset()
    return {entry.seq: entry.head for entry in entries if not entry.removed_by and is_genuine(entry, trusted)}


def read_chain() -> Iterator[Link]:
    """The lines of the chain in order.

    Raises:
        InfrastructureFault: It cannot be read.
    """
    try:
        file = chain_path().open("rb")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise InfrastructureFault(f"could not read the chain {str(chain_path())!r}: {exc.strerror}") from exc
    with file:
        yield from _links(file)


def is_genuine(entry: Entry, trusted: frozenset[str]) -> bool:
    """Whether an entry was signed with a trusted key."""
    return entry.public_key in trusted and is_signed(
        entry.message(), signature=entry.signature, public_hex=entry.public_key
    )


def _links(file: BinaryIO) -> Iterator[Link]:
    decoder = msgspec.json.Decoder(Entry)
    since: _Hash = sha256()
    number = 0
    while line := file.readline(_MAX_LINE_BYTES):
        number += 1
        entry = _decoded(line, decoder)
        is_in_order = entry is None or entry.prev in (None, since.hexdigest())
        if entry is not None and entry.prev is not None:
            since = sha256()
        since.update(line)
        while not line.endswith(b"\n") and (line := file.readline(_MAX_LINE_BYTES)):
            since.update(line)
        yield Link(number, entry, is_in_order, since.hexdigest())


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Entry]) -> Entry | None:
    try:
        return decoder.decode(line) if line.endswith(b"\n") and len(line) <= _MAX_LINE_BYTES else None
    except (ValueError, RecursionError):  # a crash tore it, or it was edited: then it proves nothing
        return None


def _record(entries: list[tuple[str, int, str, str]]) -> None:
    path = chain_path()
    try:
        make_private_dir(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "rb", buffering=0) as file:
            fcntl.flock(fd, fcntl.LOCK_EX)
            _append(fd, _signed(entries, file))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write the chain {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


def _signed(entries: list[tuple[str, int, str, str]], file: BinaryIO) -> bytes:
    """The lines of entries that follow what is in the file."""
    key = signing_key()
    begin, prev = _end(file)
    lines = [begin] if begin else []
    for run_id, seq, head, removed_by in entries:
        unsigned = Entry(
            run_id, seq, head, key.public_hex, "", prev, format_time(datetime.now(UTC)), removed_by
        )
        entry = msgspec.structs.replace(unsigned, signature=key.sign(unsigned.message()))
        lines.append(msgspec.json.encode(entry) + b"\n")
        prev = sha256(lines[-1]).hexdigest()
    return b"".join(lines)


def _end(file: BinaryIO) -> tuple[bytes, str]:
    """What ends a line that a crash tore, and the hash of all since the last chained entry began."""
    decoder = msgspec.json.Decoder(Entry)
    size = os.fstat(file.fileno()).st_size
    for start in (max(0, size - _TAIL_BYTES), 0):
        file.seek(start)
        *whole, rest = file.read().split(b"\n")
        torn = b"\n" if rest else b""
        lines = [line + b"\n" for line in (*whole, *([rest] if rest else ()))]
        # The first line of a part may be the end of one.
        for number in range(len(whole) - 1, 0 if start else -1, -1):
            entry = _decoded(lines[number], decoder)
            if entry is not None and entry.prev is not None:
                return torn, sha256(b"".join(lines[number:])).hexdigest()
    return torn, sha256(b"".join(lines)).hexdigest()


def _append(fd: int, lines: bytes) -> None:
    size = os.fstat(fd).st_size
    view = memoryview(lines)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, size)
        raise
    os.fsync(fd)
