"""The chain of a state directory, which lists its records, the length of each journal, and the removed records.

A journal without its last lines is still in order, and a removed directory leaves no trace. The chain, the file `heads`,
reveals both: it has a signed entry for each time that a journal was sealed or closed, and for each record that a command
removed. Each entry contains the hash of everything since the start of the previous entry, so that no entry can be
edited, dropped or inserted unnoticed. The chain cannot reveal that its own last entries were cut off.

Entries of version 0.1 are signed but not chained; the first chained entry covers all of them.
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
from ringfence.journal.layout import open_regular
from ringfence.journal.record import format_time
from ringfence.journal.seal import is_signed, signing_key, trusted_keys

_MAX_LINE_BYTES = 4096
_TAIL_BYTES = 64 * 1024


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last line of a journal when its writer closed it, or, with `removed_by`, the removal of a record."""

    run_id: str
    seq: int
    head: str
    public_key: str
    signature: str
    prev: str | None = None
    """SHA-256 of the file's content from the start of the last chained entry; None in entries of version 0.1."""
    time: str = ""
    removed_by: str = ""

    def message(self) -> bytes:
        """Return the bytes that the entry's signature covers."""
        if self.prev is None:
            return f"ringfence journal head v1\n{self.run_id}\n{self.seq}\n{self.head}\n".encode()
        fields = (self.run_id, str(self.seq), self.head, self.prev, self.time, self.removed_by)
        return "\n".join(("ringfence journal chain v2", *fields, "")).encode()


@frozen
class Link:
    """One line of the chain."""

    number: int
    """The number of the line, counted from 1."""
    entry: Entry | None
    """The entry; None if the line does not parse."""
    is_in_order: bool
    """Whether the entry's `prev` is correct or absent, as in version 0.1."""
    head: str
    """The hash that the next entry must contain."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def chain_path() -> Path:
    """Return the path of the chain."""
    return state_dir() / "heads"


def record_head(run_id: str, *, seq: int, head: str) -> None:
    """Append the head of a journal. The entry is on the disk when this function returns.

    Raises:
        InfrastructureFault: The chain cannot be written.
    """
    _append_entries([(run_id, seq, head, "")])


def record_removals(run_ids: Iterable[str], *, by: str) -> None:
    """Append the removal of records, before they are removed. The entries are on the disk when this function returns.

    Runs that the chain does not list, or lists as removed, are skipped.

    Args:
        run_ids: The runs.
        by: The command that removes them.

    Raises:
        InfrastructureFault: The chain cannot be written.
    """
    last: dict[str, Entry] = {
        link.entry.run_id: link.entry for link in read_chain() if link.entry is not None
    }
    known = [run_id for run_id in run_ids if run_id in last and not last[run_id].removed_by]
    if known:
        _append_entries([(run_id, -1, "", by) for run_id in known])


def known_heads(run_id: str) -> Mapping[int, str]:
    """Return the heads of a run by sequence number, without entries that have no trusted signature."""
    entries = [link.entry for link in read_chain() if link.entry is not None and link.entry.run_id == run_id]
    trusted = trusted_keys() if entries else frozenset()
    return {entry.seq: entry.head for entry in entries if not entry.removed_by and is_genuine(entry, trusted)}


def read_chain() -> Iterator[Link]:
    """Yield the lines of the chain in order.

    Raises:
        InfrastructureFault: The chain cannot be read.
    """
    try:
        file = open_regular(chain_path())
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
        entry = _decode(line, decoder)
        is_in_order = entry is None or entry.prev in (None, since.hexdigest())
        if entry is not None and entry.prev is not None:
            since = sha256()
        since.update(line)
        while not line.endswith(b"\n") and (line := file.readline(_MAX_LINE_BYTES)):
            since.update(line)
        yield Link(number, entry, is_in_order, since.hexdigest())


def _decode(line: bytes, decoder: msgspec.json.Decoder[Entry]) -> Entry | None:
    try:
        return decoder.decode(line) if line.endswith(b"\n") and len(line) <= _MAX_LINE_BYTES else None
    except (ValueError, RecursionError):  # a crash left the line incomplete, or it was edited
        return None


def _append_entries(entries: list[tuple[str, int, str, str]]) -> None:
    path = chain_path()
    try:
        make_private_dir(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "rb") as file:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                _append(fd, b"\n")  # a crash left the last line incomplete
            _append(fd, _encode_entries(entries, _read_head(file)))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write the chain {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


def _encode_entries(entries: list[tuple[str, int, str, str]], prev: str) -> bytes:
    """Return the signed lines of entries that follow the head `prev`."""
    key = signing_key()
    lines = []
    for run_id, seq, head, removed_by in entries:
        unsigned = Entry(
            run_id, seq, head, key.public_hex, "", prev, format_time(datetime.now(UTC)), removed_by
        )
        entry = msgspec.structs.replace(unsigned, signature=key.sign(unsigned.message()))
        lines.append(msgspec.json.encode(entry) + b"\n")
        prev = sha256(lines[-1]).hexdigest()
    return b"".join(lines)


def _read_head(file: BinaryIO) -> str:
    """Return the hash that the next entry must contain. Only the end of the file is read if it has a chained entry."""
    size = os.fstat(file.fileno()).st_size
    for start in (max(0, size - _TAIL_BYTES), 0):
        file.seek(start)
        if start:
            file.readline()  # it may be the end of a line
        links = list(_links(file))
        if any(link.entry is not None and link.entry.prev is not None for link in links):
            break
    return links[-1].head if links else sha256().hexdigest()


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
