"""The rules for HTTP requests from inside, which hold for every server of the gate. Pure.

h11 parses requests. These rules are stricter: a head is bounded, and a head that two parsers could read differently is
refused before it is parsed, so that no request can hide in another one.
"""

import re

from ringfence.frozen import frozen

HEAD_LIMIT_BYTES = 32 * 1024

_METHOD = re.compile(rb"[A-Z]{1,20}( |$)")
_FIRST_BYTES = 21
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_HEAD = re.compile(
    rb"[A-Z]++ [\x21-\x7e]++ HTTP/[0-9]\.[0-9]\r\n(?:" + _NAME + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
_AMBIGUOUS_LINE_END = re.compile(rb"(?<!\r)\n|\r[^\n]|\n[ \t]")
"""A line end of one character, or a line that continues the one before. A byte at the end of a piece is judged when the
next byte has arrived."""

_FRAMING = re.compile(rb"\r\n(host|content-length|transfer-encoding):[ \t]*([^\r]*)", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_END = b"\r\n\r\n"


class BadRequest(Exception):
    """The bytes are not an acceptable request.

    Args:
        status: The HTTP status of the response.
        reason: Why, in one line.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@frozen
class Request:
    """A request, or only its head if the body is read piece by piece."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case; values as latin-1."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the first value of a header, or an empty string."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def wants_upgrade(self) -> bool:
        """Whether the client asks for another protocol on this connection."""
        return any(name == "upgrade" for name, _ in self.headers)


class HeadReader:
    """Collects the head of a request, and refuses it as soon as a rule is broken. No byte is examined twice."""

    def __init__(self) -> None:
        self.head = b""
        """The complete head, once `feed` has returned true."""
        self.rest = b""
        """The bytes received after the head."""
        self._data = bytearray()

    @property
    def has_begun(self) -> bool:
        """Whether any byte has arrived."""
        return bool(self._data or self.head)

    def feed(self, data: bytes) -> bool:
        """Add bytes, at least one; return whether the head is complete.

        Raises:
            BadRequest: A rule is broken.
        """
        start = max(0, len(self._data) - len(_END) + 1)
        self._data += data
        found = self._data.find(_END, start)
        end = len(self._data) if found < 0 else found + len(_END)
        if not _METHOD.match(self._data[:_FIRST_BYTES]):
            raise BadRequest(400, "the request is not HTTP (neither SOCKS nor TLS is supported here)")
        if end > HEAD_LIMIT_BYTES:
            raise BadRequest(431, f"the request's head is larger than {HEAD_LIMIT_BYTES} bytes")
        if _AMBIGUOUS_LINE_END.search(self._data, start, end):
            raise BadRequest(
                400, "the request's head has lines that do not end in CRLF, or that are continued"
            )
        if found < 0:
            return False
        self.head, self.rest = bytes(self._data[:end]), bytes(self._data[end:])
        self._data.clear()
        _check_head(self.head)
        return True


def _check_head(head: bytes) -> None:
    """Refuse a head that two parsers could take for different requests."""
    if not _HEAD.fullmatch(head):
        raise BadRequest(400, "the request is not HTTP: a line of its head is malformed")
    framing: dict[bytes, bytes] = {}
    for name, value in _FRAMING.findall(head):
        if name.lower() in framing:
            raise BadRequest(400, f"the request has the header {name.decode()!r} twice")
        framing[name.lower()] = value.rstrip(b" \t")
    length, coding = framing.get(b"content-length"), framing.get(b"transfer-encoding")
    is_http_1_1 = head[: head.index(b"\r")].endswith(b"HTTP/1.1")
    if b"host" not in framing and is_http_1_1:
        raise BadRequest(400, "the request has no Host header")
    if coding is not None and (length is not None or not is_http_1_1):
        raise BadRequest(400, "the request declares its length in two ways")
    if coding is not None and coding.lower() != b"chunked":
        raise BadRequest(501, "the request's body has an unsupported transfer encoding")
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadRequest(400, "the request's Content-Length is not a number")
