"""What a guest says in records, taken apart. Every value is hostile: what is no such thing is a protocol death."""

import errno
from typing import cast

from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.result import EndedBy

_RECORD_LIMIT = 64 * 1024
_LONGEST_S = 1e9
_LARGEST = 2**63
_MESSAGE_LIMIT = 1000
_HIGHEST_PORT = 65_535


class ProtocolError(Exception):
    """The guest sent what it must not. Never leaves the sandbox room: it becomes `SandboxDied`."""


@frozen
class Exit:
    """A command's EXIT frame."""

    exit_code: int
    signal: int | None
    ended_by: EndedBy
    duration_s: float
    refused: tuple[str, ...] = ()
    """What the gate refused meanwhile. A holder says it; of a guest it is not believed."""


@frozen
class Failure:
    """A channel's FAIL frame: the command could not be started, or a file operation failed."""

    stage: str
    errno: int
    message: str


def parse_record(payload: bytes) -> dict[str, str]:
    """The pairs of a record.

    Raises:
        ProtocolError: It is malformed.
    """
    if len(payload) > _RECORD_LIMIT:
        raise ProtocolError(f"sent a record of {len(payload)} bytes")
    try:
        return dict(frames.decode_record(payload))
    except ValueError as exc:
        raise ProtocolError(f"sent a bad record: {exc}") from exc


def parse_exit(payload: bytes) -> Exit:
    """An EXIT frame.

    Raises:
        ProtocolError: It is malformed.
    """
    record = parse_record(payload)
    try:
        signal = int(record["signal"])
        refused = tuple(filter(None, record.get("refused", "").split("\n")))
        ended_by = cast("EndedBy", record["ended_by"])  # looked at below
        end = Exit(int(record["code"]), signal or None, ended_by, float(record["duration_s"]), refused)
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"sent a bad EXIT: {str(exc)[:200]!r}") from exc
    known = ("exit", "signal", "timeout", "cancel", "memory", "pids", "disk")
    is_possible = 0 <= end.exit_code <= 255 and 0 <= signal <= 64 and 0 <= end.duration_s < _LONGEST_S
    if end.ended_by not in known or not is_possible:
        raise ProtocolError(f"sent a bad EXIT: {str(record)[:200]!r}")
    return end


def parse_usage(payload: bytes) -> tuple[int, float, int, int | None]:
    """(memory in bytes, processor seconds, processes, kills for lack of memory) of a STATS_REPLY.

    Raises:
        ProtocolError: They are no such numbers.
    """
    record = parse_record(payload)
    try:
        memory, cpu_s, pids = int(record["memory"]), float(record["cpu_s"]), int(record["pids"])
        oom_kills = int(record["oom_kills"]) if "oom_kills" in record else None
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"sent a bad STATS_REPLY: {str(exc)[:200]!r}") from exc
    if not (0 <= memory < _LARGEST and 0 <= cpu_s < _LARGEST and 0 <= pids < _LARGEST):
        raise ProtocolError(f"sent a bad STATS_REPLY: {str(record)[:200]!r}")
    if not 0 <= (oom_kills or 0) < _LARGEST:
        raise ProtocolError(f"sent a bad STATS_REPLY: {str(record)[:200]!r}")
    return memory, cpu_s, pids, oom_kills


def parse_failure(payload: bytes) -> Failure:
    """A FAIL frame.

    Raises:
        ProtocolError: It is malformed.
    """
    record = parse_record(payload)
    try:
        return Failure(record.get("stage", "start"), int(record["errno"]), record["message"][:_MESSAGE_LIMIT])
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"sent a bad FAIL: {str(exc)[:200]!r}") from exc


def parse_port(payload: bytes) -> int:
    """The port of a LISTENING frame; 0 for a Unix socket.

    Raises:
        ProtocolError: It is malformed.
    """
    text = parse_record(payload).get("port", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _HIGHEST_PORT):
        raise ProtocolError(f"sent a bad LISTENING: {text[:200]!r}")
    return int(text)


def errno_name(failure: Failure) -> str:
    """`ENOENT` and so on; `EIO` for what has no name."""
    return errno.errorcode.get(failure.errno, "EIO")
