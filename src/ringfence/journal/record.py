"""The shape of one line of a journal, and the way between lines and events.

A line is `{"seq":n,"time":"…Z","prev":"<sha256>","event":"tool.called","data":{…}}`. The tag stands at the
top, so that `jq` and a reader find it; the fields stand apart under `data`, so that no field of an event can
collide with one of the chain.
Measured: 0.45 µs to decode the header with `data` left raw, 0.8 µs with the typed event.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, get_args

import msgspec

from ringfence import events
from ringfence.errors import RecordError

FORMAT = 1
"""Version of the journal's format; `journal.opened` carries it."""

GENESIS = "0" * 64
"""`prev` of the first line."""

MAX_LINE_BYTES = 2 * 1024**2
"""No line is longer: writers put large bodies beside the journal, readers stop at a longer line."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Header(msgspec.Struct, frozen=True):
    """A line as the chain sees it."""

    seq: int
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    prev: str
    event: str
    data: msgspec.Raw


_HEADER_DECODER = msgspec.json.Decoder(Header)


class UnknownEvent(events.Event, frozen=True, kw_only=True, tag="journal.unknown"):
    """An event of another version of ringfence, kept as it was found."""

    tag: str
    fields: Any

    @property
    def name(self) -> str:
        """The tag as it was written."""
        return self.tag


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its place in the journal."""

    seq: int
    time: datetime
    prev: str
    event: events.Event
    digest: str
    """SHA-256 of the line, its newline included; the next line's `prev`."""


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC, always with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def digest_of(line: bytes) -> str:
    """The hash that chains a line (its newline included) to the next."""
    return sha256(line).hexdigest()


def encode_data(event: events.Event) -> bytes:
    """The event's fields as a JSON object, without its tag."""
    encoded = _ENCODER.encode(event)
    tag_length = len(f'"event":"{event.name}"')
    rest = encoded[1 + tag_length :]
    return b"{" + (rest[1:] if rest.startswith(b",") else rest)


def encode_json(value: Any) -> bytes:
    """JSON with sorted keys: the same value gives the same bytes."""
    return _ENCODER.encode(value)


def encode_line(seq: int, time: str, *, prev: str, event: str, data: bytes) -> bytes:
    """A whole line, newline included."""
    head = f'{{"seq":{seq},"time":"{time}","prev":"{prev}","event":"{event}","data":'
    return head.encode() + data + b"}\n"


def decode_header(line: bytes) -> Header:
    """Parse a line, leaving its data raw.

    Raises:
        ValueError: It is no line of a journal.
    """
    try:
        return _HEADER_DECODER.decode(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def decode_event(tag: str, data: bytes | msgspec.Raw) -> events.Event:
    """The event of a line whose bodies are all in it; `UnknownEvent` where its shape is not known.

    Raises:
        RecordError: The data is not JSON.
    """
    decoder = _decoders().get(tag)
    try:
        if decoder is not None:
            with suppress(msgspec.ValidationError):  # another version's shape of a known event
                return decoder.decode(data)
        return UnknownEvent(tag=tag, fields=msgspec.json.decode(data))
    except (ValueError, RecursionError) as exc:
        raise RecordError(f"event {tag!r} does not parse: {exc}; run `ringfence runs verify`") from exc


def convert_event(tag: str, fields: Mapping[str, Any]) -> events.Event:
    """As `decode_event`, from fields that were decoded already."""
    decoder = _decoders().get(tag)
    if decoder is not None:
        with suppress(msgspec.ValidationError):  # another version's shape of a known event
            return msgspec.convert(fields, decoder.type)
    return UnknownEvent(tag=tag, fields=fields)


def as_json(record: Record) -> dict[str, Any]:
    """The record as `--json` prints it: as in the journal, with the large bodies in place."""
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
def _decoders() -> dict[str, msgspec.json.Decoder[events.Event]]:
    kinds: tuple[type[events.Event], ...] = get_args(events.AnyEvent)
    return {str(kind.__struct_config__.tag): msgspec.json.Decoder(kind) for kind in kinds}
