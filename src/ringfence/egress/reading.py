"""One HTTP request of a process inside, out of bytes as they come: bounded, and refused where readers could differ.

Each line of a head is held against what a line may be; then nothing of it can be read in two ways, and a parser for all
that HTTP may be, which takes longer for a request than everything else here, has nothing to add. It reads bodies in
chunks.
"""

import re
from collections.abc import Callable

import h11

from ringfence.frozen import frozen

_HEAD_BYTES = 32 * 1024

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_HEAD = re.compile(
    _NAME + rb" [\x21-\x7e]++ HTTP/1\.[01]\r\n(?:" + _NAME + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
LOOSE_LINE = re.compile(rb"(?<!\r)\n|\r[^\n]|\n[ \t]")
"""A line end of one character, or a line that goes on with the one before: readers differ about both. What the next
byte decides is found when that has come. The one rule for everything that reads a head."""

_LENGTH = re.compile("[0-9]{1,18}")
_IN_CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"\r\n\r\n"


@frozen
class Asked:
    """A request."""

    method: str
    target: str
    body: bytes
    wants_upgrade: bool
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""

    def header(self, name: str) -> str:
        """The first value of a header; empty if it is not said."""
        return next((value for each, value in self.headers if each == name), "")


class Unreadable(Exception):
    """What came is no request that is taken; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RequestReader:
    """Reads one request.

    Args:
        take: Called with the length of each piece of its body; what it raises is raised by `feed`.
    """

    def __init__(self, take: Callable[[int], None]) -> None:
        self.has_begun = False
        self.has_head = False
        self.is_whole = False
        self.rest = b""
        """What came behind the request: none of it is read."""
        self.method = ""
        self.is_newer = True
        """Whether it is of HTTP/1.1, rather than 1.0."""
        self._take = take
        self._head = bytearray()
        self._target = ""
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body = bytearray()
        self._whole = b""
        self._left = 0
        self._chunks: h11.Connection | None = None

    @property
    def asked(self) -> Asked:
        """The request, once it is whole."""
        wants_upgrade = any(name == "upgrade" for name, _ in self._headers)
        return Asked(self.method, self._target, self._whole, wants_upgrade, self._headers)

    @property
    def keeps(self) -> bool:
        """Whether another request may follow, as far as this one says."""
        words = [word.strip() for word in ",".join(self._values("connection")).lower().split(",")]
        return self.is_newer and "close" not in words

    @property
    def wants_leave(self) -> bool:
        """Whether the client waits to be told that it may send the body."""
        if not self.has_head or self.is_whole or self._body or not self.is_newer:
            return False
        return any("100-continue" in value.lower() for value in self._values("expect"))

    def feed(self, data: bytes) -> None:
        """Take bytes as they came, at least one.

        Raises:
            Unreadable: They are none of a request that is taken.
        """
        self.has_begun = True
        if self.has_head:
            self._feed_body(data)
        else:
            self._feed_head(data)

    def _feed_head(self, data: bytes) -> None:
        known = max(0, len(self._head) - len(_END) + 1)
        self._head += data
        found = self._head.find(_END, known)
        end = len(self._head) if found < 0 else found + len(_END)
        if end > _HEAD_BYTES:
            raise Unreadable(431, f"the request's head is larger than {_HEAD_BYTES} bytes")
        if LOOSE_LINE.search(self._head, known, end):
            raise Unreadable(400, "the request's head has lines that do not end, or that go on")
        if not 0x21 <= self._head[0] <= 0x7E:
            raise Unreadable(400, "the request is no HTTP")
        if found < 0:
            return
        head, rest = bytes(self._head[:end]), bytes(self._head[end:])
        self._head.clear()
        if not _HEAD.fullmatch(head):
            raise Unreadable(400, "the request is no HTTP: a line of its head is none")
        self._read_head(head.decode("latin-1"))
        self._feed_body(rest)

    def _read_head(self, head: str) -> None:
        first, *lines = head[: -len(_END)].split("\r\n")
        self.method, self._target, version = first.split(" ")
        pairs = [line.partition(":") for line in lines]
        self._headers = tuple((name.lower(), value.strip(" \t")) for name, _, value in pairs)
        self.is_newer = version == "HTTP/1.1"
        self._refuse_ambiguity()
        self.has_head = True
        if self._values("transfer-encoding"):
            self._chunks = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
            self._chunks.receive_data(_IN_CHUNKS)
            self._chunks.next_event()
        else:
            self._left = int(next(iter(self._values("content-length")), "0"))

    def _refuse_ambiguity(self) -> None:
        """Refuse what two readers could take for two different requests."""
        hosts, lengths, codings = map(self._values, ("host", "content-length", "transfer-encoding"))
        if max(len(hosts), len(lengths), len(codings)) > 1:
            raise Unreadable(400, "the request says a header twice that may be said once")
        if not hosts and self.is_newer:
            raise Unreadable(400, "the request names no host")
        if codings and (lengths or not self.is_newer):
            raise Unreadable(400, "the request has two lengths")
        if codings and codings[0].lower() != "chunked":
            raise Unreadable(501, "the request's body is encoded in a way that is not taken")
        if lengths and not _LENGTH.fullmatch(lengths[0]):
            raise Unreadable(400, "the request's length is no number")

    def _feed_body(self, data: bytes) -> None:
        if self._chunks is not None:
            if data:  # nothing is the end to h11
                self._feed_chunks(self._chunks, data)
        else:
            piece, rest = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if self._left or self._body:
                self._add(piece)
            else:  # all of it at once, as it mostly comes: nothing to be put together
                self._take(len(piece))
                self._whole = piece
            if self._left == 0:
                self._end(rest)

    def _feed_chunks(self, http: h11.Connection, data: bytes) -> None:
        try:
            http.receive_data(data)
            while isinstance(event := http.next_event(), h11.Data):
                self._add(event.data)
        except h11.RemoteProtocolError as exc:
            raise Unreadable(400, f"the request is no HTTP: {exc}") from exc
        if isinstance(event, h11.EndOfMessage):
            self._end(bytes(http.trailing_data[0]))

    def _add(self, piece: bytes | bytearray) -> None:
        self._take(len(piece))
        self._body += piece

    def _end(self, rest: bytes) -> None:
        self.is_whole, self.rest = True, rest
        if self._body:
            self._whole = bytes(self._body)
            self._body = bytearray()  # it may be large, and is needed until the answer is over: once

    def _values(self, wanted: str) -> list[str]:
        return [value for name, value in self._headers if name == wanted]
