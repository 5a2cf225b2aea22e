"""The index of heads: how far each journal had come when its writer let go of it.

Whole lines cut off the end of a sealed journal leave a journal that is in order and merely not sealed. The
index, one signed line for each time a journal was sealed or closed, tells the difference. It is append-only.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.journal.keys import is_signed, signing_key, trusted_keys
from ringfence.journal.sealing import head_message

_MAX_LINE_BYTES = 4096


class Head(msgspec.Struct, frozen=True):
    """The last line of a journal, as it was when its writer let go of it."""

    run_id: str
    seq: int
    head: str
    public_key: str
    signature: str


def heads_path() -> Path:
    """The file of the index."""
    return state_dir() / "heads"


def record_head(run_id: str, *, seq: int, head: str) -> None:
    """Append an entry, on the disk when this returns.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    key = signing_key()
    signature = key.sign(head_message(run_id, seq=seq, head=head))
    entry = Head(run_id=run_id, seq=seq, head=head, public_key=key.public_hex, signature=signature)
    line = msgspec.json.encode(entry) + b"\n"
    try:
        make_private_dir(state_dir())
        fd = os.open(heads_path(), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _append(fd, line)
        finally:
            os.close(fd)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write the index of heads {str(heads_path())!r}: {exc.strerror}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc


def known_heads(run_id: str) -> Mapping[int, str]:
    """The heads of a run by sequence number; entries without a trusted signature do not count."""
    entries = [entry for entry in _entries() if entry.run_id == run_id]
    trusted = trusted_keys() if entries else frozenset()
    return {entry.seq: entry.head for entry in entries if _is_genuine(entry, trusted)}


def known_runs() -> frozenset[str]:
    """The ids of all runs in the index, those that were removed since included."""
    return frozenset(entry.run_id for entry in _entries())


def _entries() -> Iterator[Head]:
    decoder = msgspec.json.Decoder(Head)
    try:
        file = heads_path().open("rb")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise InfrastructureFault(
            f"could not read the index of heads {str(heads_path())!r}: {exc.strerror}"
        ) from exc
    with file:
        while line := file.readline(_MAX_LINE_BYTES):
            try:
                yield decoder.decode(line)
            except (ValueError, RecursionError):  # torn by a crash, or edited: then it vouches for nothing
                continue


def _is_genuine(entry: Head, trusted: frozenset[str]) -> bool:
    message = head_message(entry.run_id, seq=entry.seq, head=entry.head)
    return entry.public_key in trusted and is_signed(
        message, signature=entry.signature, public_hex=entry.public_key
    )


def _append(fd: int, line: bytes) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":  # a crash left half an entry
        line = b"\n" + line
    view = memoryview(line)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, size)
        raise
    os.fsync(fd)
