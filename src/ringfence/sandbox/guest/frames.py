"""Defines the wire format of the stream between the host and the guest.

A frame is a 9-byte header (payload length u32, channel u32, kind u8, big-endian) and its payload. Channel 0 is the
sandbox itself. The host numbers the commands, listeners and connections that it opens; the guest numbers the
connections that it accepts, from `GUEST_NUMBERS` up, so that neither waits for the other. Structured payloads are
records: pairs of text, each text a u32 length and UTF-8 bytes (surrogateescape).

Flow control: each side sends on a channel only as many bytes as the other has granted. The host's grant for a command's
output is in OPEN; the guest's grant for stdin is `STDIN_WINDOW`; on a connection each side starts with
`CONNECTION_WINDOW`.

The end of a connection: after DATA_END its sender sends no more bytes; after CLOSE it neither sends nor receives any.
Each side sends CLOSE exactly once, as its last frame; then the number is free again. The same holds for listeners.
"""

from __future__ import annotations

import _struct as struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Union

VERSION = "1"
HEADER = struct.Struct(">IIB")
MAX_PAYLOAD = 256 * 1024
STDIN_WINDOW = 256 * 1024
CONNECTION_WINDOW = 128 * 1024
GUEST_NUMBERS = 1 << 31

# from the host to the guest
CONFIG = 1  # record: ttl_s, memory, pids, disk, path...
OPEN = 2  # record: argv..., env..., cwd, timeout_s, rows, cols, window, op
STDIN = 3  # bytes
STDIN_END = 4
SIGNAL = 5  # u32
RESIZE = 6  # u32 rows, u32 cols
CREDIT_OUT = 7  # u32: more bytes of stdout
CREDIT_ERR = 8  # u32: more bytes of stderr
KILL = 9  # kill the channel's whole tree
PING = 10
STATS = 11
LISTEN = 12  # record: port (0: any) or path, limit (connections at once); opens a listener's channel
CONNECT = 13  # record: port; opens a connection's channel

# from the guest to the host
HELLO = 32  # record: version, python, pid, uid, undumpable, masked, filtered
STDOUT = 33  # bytes
STDERR = 34  # bytes
CREDIT_IN = 35  # u32: more bytes of stdin
EXIT = 36  # record: code, signal, ended_by, duration_s; the last frame of its channel
FAIL = 37  # record: errno, message; the last frame of its channel
PONG = 38
STATS_REPLY = 39  # record: memory, cpu_s, pids
BYE = 40  # record: reason; the last frame of all
LISTENING = 41  # record: port; the answer to LISTEN, unless it is FAIL
ACCEPTED = 42  # u32: number of a new connection's channel; on its listener's
CONNECTED = 43  # the answer to CONNECT, unless it is FAIL

# in both directions, on a connection's channel
DATA = 64  # bytes, at least one
DATA_END = 65
CREDIT = 66  # u32: more bytes of DATA
CLOSE = 67  # empty, or `RESET`: bytes on their way are lost

RESET = b"\1"
CONNECTION_KINDS = (LISTEN, CONNECT, DATA, DATA_END, CREDIT, CLOSE)

U32 = struct.Struct(">I")
SIZE = struct.Struct(">II")
_MAX_FIELDS = 100_000
_LARGE_BLOCK_BYTES = 4 * 1024 * 1024


class FrameError(ValueError):
    """The bytes are not a valid frame or record."""


class FrameReader:
    """Splits the bytes of a stream into frames, however the stream divides them.

    Each frame is delivered at once: collecting frames of 64 KiB in a list first took twice the time.

    Args:
        max_payload: A frame that announces more bytes than this is refused before they are read.
        on_frame: Called with kind, channel and payload of each frame.
    """

    def __init__(self, max_payload: int, on_frame: Callable[[int, int, bytes], object]) -> None:
        self._max_payload = max_payload
        self._on_frame = on_frame
        self._rest = bytearray()
        """The beginning of a frame."""
        # Until a process has freed a block as large as this, glibc returns the memory of each payload to the kernel and
        # requests it again (mallopt(3), M_MMAP_THRESHOLD): 100 MB of output then take 100 ms instead of 60.
        bytes(_LARGE_BLOCK_BYTES)

    def feed(self, data: bytes) -> None:
        """Handle the next bytes.

        Raises:
            FrameError: A frame is too long.
        """
        if not self._rest:
            self._rest += data[self._split(data) :]
            return
        self._rest += data
        with memoryview(self._rest) as view:
            end = self._split(view)
        del self._rest[:end]

    def _split(self, data: Union[bytes, memoryview]) -> int:
        """Deliver the complete frames in `data`; return where they end."""
        position, size = 0, len(data)
        while size - position >= HEADER.size:
            length, channel, kind = HEADER.unpack_from(data, position)
            if length > self._max_payload:
                raise FrameError("announced a frame of %d bytes" % length)
            if size - position - HEADER.size < length:
                break
            position += HEADER.size + length
            self._on_frame(kind, channel, bytes(data[position - length : position]))
        return position


def encode_frame(kind: int, channel: int = 0, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    return HEADER.pack(len(payload), channel, kind) + payload


def encode_record(pairs: Iterable[tuple[str, object]]) -> bytes:
    """Encode pairs of key and value."""
    parts = []
    for pair in pairs:
        for text in pair:
            data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
            parts.append(U32.pack(len(data)))
            parts.append(data)
    return b"".join(parts)


def decode_record(payload: bytes) -> list[tuple[str, str]]:
    """Decode the pairs of key and value in `payload`.

    Raises:
        FrameError: It is not a record.
    """
    texts: list[str] = []
    position = 0
    while position < len(payload):
        end = position + 4
        if end > len(payload) or len(texts) > _MAX_FIELDS:
            raise FrameError("record is cut short or has too many fields")
        (length,) = U32.unpack_from(payload, position)
        position = end + length
        if position > len(payload):
            raise FrameError("record is cut short")
        texts.append(payload[end:position].decode("utf-8", "surrogateescape"))
    if len(texts) % 2:
        raise FrameError("record has a key without a value")
    return list(zip(texts[::2], texts[1::2]))
