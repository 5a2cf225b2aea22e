"""Parses records that the guest sends. Every value is hostile: one that is out of range ends the sandbox."""

import errno
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from ringfence.sandbox.guest import frames

_RECORD_LIMIT = 64 * 1024
_MESSAGE_LIMIT = 1000
_QUOTED = 200

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Record = TypeVar("_Record")


class ProtocolError(Exception):
    """The guest broke the protocol. Never leaves the sandbox package: it becomes `SandboxDied`."""


class Exit(Struct, frozen=True):
    """A command's EXIT frame."""

    exit_code: Annotated[int, Meta(ge=0, le=255)] = msgspec.field(name="code")
    signal: Annotated[int, Meta(ge=0, le=64)]
    """0: none."""
    ended_by: Literal["exit", "signal", "timeout", "cancel", "memory", "pids", "disk"]
    duration_s: Annotated[float, Meta(ge=0, lt=1e9)]
    refused: str = "[]"
    """The encoded refusals meanwhile. Trusted only from a supervisor, not from a guest."""


class Refusal(NamedTuple):
    """A line on a request that the gate refused, or that failed."""

    line: str
    grant: str | None
    """The command that would allow it: `allow`, `undeny` or an empty text; None: it was allowed, and failed."""


class Failure(Struct, frozen=True):
    """A channel's FAIL frame: the command could not be started, or a file operation failed."""

    errno: int
    unbounded_message: str = msgspec.field(name="message")
    stage: str = "start"

    @property
    def message(self) -> str:
        """Why it failed, for messages and for the record, which cannot hold lone surrogates."""
        return self.unbounded_message[:_MESSAGE_LIMIT].encode("utf-8", "replace").decode()

    @property
    def errno_name(self) -> str:
        """`ENOENT` and so on; `EIO` for a number without a name."""
        return errno.errorcode.get(self.errno, "EIO")


class Measurement(Struct, frozen=True):
    """A STATS_REPLY frame: the total usage of everything inside."""

    memory: _Count
    cpu_s: Annotated[float, Meta(ge=0, lt=1e18)]
    pids: _Count
    oom_kills: _Count | None = None


class Listening(Struct, frozen=True):
    """A LISTENING frame."""

    port: Annotated[int, Meta(ge=0, le=65_535)]
    """0 for a Unix socket."""


def parse_record(payload: bytes, kind: type[_Record]) -> _Record:
    """Parse a record of a kind.

    Raises:
        ProtocolError: It is too long, malformed, or a value is missing or out of range.
    """
    if len(payload) > _RECORD_LIMIT:
        raise ProtocolError(f"sent a record of {len(payload)} bytes")
    try:
        return msgspec.convert(dict(frames.decode_record(payload)), kind, strict=False)
    except (msgspec.ValidationError, ValueError) as exc:
        raise ProtocolError(f"sent a bad record: {str(exc)[:_QUOTED]!r}") from exc


def encode_end(end: Exit | Failure) -> bytes:
    """Encode the record of a channel's last frame."""
    return frames.encode_record(msgspec.to_builtins(end).items())


def encode_refusals(refusals: Iterable[Refusal]) -> str:
    """Encode refusals for the EXIT frame that a supervisor sends; the last ones are omitted if all are too long.

    The lines contain names that processes inside chose; the frame is valid and fits for any names.
    """
    kept = [
        Refusal(each.line[:_MESSAGE_LIMIT].encode("utf-8", "replace").decode(), each.grant)
        for each in refusals
    ]
    while len(encoded := msgspec.json.encode(kept)) > _RECORD_LIMIT // 2:
        kept.pop()
    return encoded.decode()


def decode_refusals(text: str) -> list[Refusal]:
    """Decode the output of `encode_refusals`.

    Raises:
        ProtocolError: The bytes are malformed.
    """
    try:
        return msgspec.json.decode(text, type=list[Refusal])
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise ProtocolError(f"sent bad refusals: {str(exc)[:_QUOTED]!r}") from exc
