"""Reads server-sent events from the pieces of a stream.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end in CR, LF or CRLF, and the `data` lines of an
event belong together.
"""

from collections.abc import Iterator

_LIMIT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Collects the data of events, wherever the stream is cut."""

    def __init__(self) -> None:
        self.dropped_bytes = 0
        """The bytes of events that were too large to be collected."""
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._is_first = True
        self._is_after_cr = False
        self._is_in_dropped_line = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add a piece of the stream; yield the data of each event that it completes."""
        if self._is_after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._is_after_cr = False
        if not piece:
            return
        self._is_after_cr = piece.endswith(b"\r")
        first, *others = piece.splitlines()
        self._line += first
        if not others and not piece.endswith((b"\r", b"\n")):
            self._bound()
            return
        lines = [bytes(self._line), *others]
        if self._is_in_dropped_line:
            lines[0], self._is_in_dropped_line = b"dropped", False  # a field that no client knows
        self._line = bytearray(b"" if piece.endswith((b"\r", b"\n")) else lines.pop())
        for line in lines:
            data = self._take(line)
            if data is not None:
                yield data
        self._bound()

    def finish(self) -> bytes | None:
        """Return the data of an event that the end of the stream cut off; None if there is none.

        A client must discard it, but the API did send it.
        """
        if self._line and not self._is_in_dropped_line:
            self._take(bytes(self._line))
        self._line.clear()
        return self._take(b"")

    def _take(self, line: bytes) -> bytes | None:
        """Take a complete line; return the data of the event that it ends."""
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if not line:
            data, self._data, self._data_bytes = self._data, [], 0
            return b"\n".join(data) or None  # an event without data does not count
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value) + 1
        return None

    def _bound(self) -> None:
        if len(self._line) + self._data_bytes > _LIMIT_BYTES:
            self.dropped_bytes += len(self._line) + self._data_bytes
            self._is_in_dropped_line = self._is_in_dropped_line or bool(self._line)
            self._line.clear()
            self._data, self._data_bytes = [], 0
