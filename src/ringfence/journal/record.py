"""The format of the lines of a journal, and the conversion between lines and events.

A line is `{"seq":n,"time":"…Z","prev":"<sha256>","event":"tool.called","data":{…}}`. The tag is at the top
level, where `jq` and readers find it. The fields are separate under `data`, so that no field of an event collides with
one of the chain.
Verification decodes headers and leaves `data` raw, which takes half the time of decoding both.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, get_args

import msgspec

from ringfence import events

FORMAT = 1
"""The version of the journal's format, which `journal.opened` contains."""

GENESIS = "0" * 64
"""The value of `prev` in the first line."""

MAX_LINE_BYTES = 2 * 1024**2
"""The longest line: writers store large values as blobs, and readers reject longer lines."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Header(msgspec.Struct, frozen=True):
    """A line with the fields of the chain decoded and the event's data raw."""

    seq: int
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    prev: str
    event: str
    data: msgspec.Raw


_HEADER_DECODER = msgspec.json.Decoder(Header)


class UnknownEvent(events.Event, frozen=True, kw_only=True, tag="journal.unknown"):
    """An event of another version of Ringfence, with its fields unchanged."""

    tag: str
    fields: Any

    @property
    def name(self) -> str:
        """The tag in the journal."""
        return self.tag


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its place in the journal."""

    seq: int
    time: datetime
    prev: str
    event: events.Event
    digest: str
    """SHA-256 of the line with its newline, which is the `prev` of the next line."""


def format_time(moment: datetime) -> str:
    """Return the time in RFC 3339 format, in UTC and always with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def digest_of(line: bytes) -> str:
    """Return the hash of a line with its newline, which the next line contains."""
    return sha256(line).hexdigest()


def encode_data(event: events.Event) -> bytes:
    """Encode the event's fields as a JSON object, without its tag."""
    encoded = _ENCODER.encode(event)
    tag_length = len(f'"event":"{event.name}"')
    rest = encoded[1 + tag_length :]
    return b"{" + (rest[1:] if rest.startswith(b",") else rest)


def encode_json(value: Any) -> bytes:
    """Encode JSON with sorted keys, so that equal values give equal bytes."""
    return _ENCODER.encode(value)


def encode_line(seq: int, time: str, *, prev: str, event: str, data: bytes) -> bytes:
    """Encode a complete line with its newline."""
    head = f'{{"seq":{seq},"time":"{time}","prev":"{prev}","event":"{event}","data":'
    return head.encode() + data + b"}\n"


def decode_header(line: bytes) -> Header:
    """Parse a line, except its data.

    Raises:
        ValueError: The text is not a line of a journal.
    """
    try:
        return _HEADER_DECODER.decode(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def event_of(tag: str, fields: Any) -> events.Event:
    """Return the event with these decoded fields, or an `UnknownEvent` if no known event has its shape."""
    kind = _kinds().get(tag)
    if kind is not None:
        with suppress(msgspec.ValidationError):  # another version gave the event another shape
            return msgspec.convert(fields, kind)
    return UnknownEvent(tag=tag, fields=fields)


def from_json(document: Mapping[str, Any]) -> Record:
    """Return the record that `as_json` has printed; its digest is not known."""
    return Record(
        seq=document["seq"],
        time=datetime.fromisoformat(document["time"]),
        prev=document["prev"],
        event=event_of(document["event"], document["data"]),
        digest="",
    )


def as_json(record: Record) -> dict[str, Any]:
    """Return the record as `--json` prints it: as in the journal, with its blobs loaded."""
    event = record.event
    fields = event.fields if isinstance(event, UnknownEvent) else msgspec.to_builtins(event)
    if isinstance(fields, dict):
        fields = {key: value for key, value in fields.items() if key != "event"}
    return {
        "seq": record.seq,
        "time": format_time(record.time),
        "prev": record.prev,
        "event": event.name,
        "data": fields,
    }


@cache
def _kinds() -> dict[str, type[events.Event]]:
    kinds: tuple[type[events.Event], ...] = get_args(events.AnyEvent)
    return {str(kind.__struct_config__.tag): kind for kind in kinds}
