"""What a signature is over: a journal's seal, and an entry in the index of heads."""

from datetime import datetime

import msgspec

from ringfence.events import JournalSealed
from ringfence.journal.keys import SigningKey, is_signed
from ringfence.journal.record import Header, encode_data, encode_line, format_time


def seal_message(run_id: str, *, seq: int, time: str, head: str) -> bytes:
    """The bytes that a seal signs. All that its line says is in them: no byte of it can change."""
    return f"ringfence journal seal v1\n{run_id}\n{seq}\n{time}\n{head}\n".encode()


def head_message(run_id: str, *, seq: int, head: str) -> bytes:
    """The bytes that an entry in the index of heads signs."""
    return f"ringfence journal head v1\n{run_id}\n{seq}\n{head}\n".encode()


def make_seal(key: SigningKey, run_id: str, *, seq: int, time: datetime, head: str) -> JournalSealed:
    """The event that closes a journal whose last line hashes to `head`."""
    message = seal_message(run_id, seq=seq, time=format_time(time), head=head)
    return JournalSealed(head=head, signature=key.sign(message), public_key=key.public_hex)


def seal_fault(line: bytes, header: Header, *, run_id: str, trusted: frozenset[str]) -> str | None:
    """What is wrong with the sealing line of a journal; None if nothing is."""
    try:
        seal = msgspec.json.decode(header.data, type=JournalSealed)
    except (ValueError, RecursionError) as exc:
        return f"the seal does not parse: {exc}"
    time = format_time(header.time)
    canonical = encode_line(header.seq, time, prev=header.prev, event=header.event, data=encode_data(seal))
    if line != canonical:
        return "the seal is not written as ringfence writes it: it was edited"
    if seal.head != header.prev:
        return "the seal is over another head"
    if seal.public_key not in trusted:
        return "the seal was made with a key that is not trusted here"
    message = seal_message(run_id, seq=header.seq, time=time, head=seal.head)
    if not is_signed(message, signature=seal.signature, public_hex=seal.public_key):
        return "the seal's signature is wrong"
    return None
