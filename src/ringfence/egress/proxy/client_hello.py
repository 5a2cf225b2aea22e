"""The first message of TLS, as far as it says for whom it is (RFC 8446 4.1.2, RFC 6066 3). Pure; all is hostile."""

from ringfence.frozen import frozen

LIMIT_BYTES = 64 * 1024
"""Of all that is looked at; those of today have 2 KiB at most."""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
_LARGEST_RECORD = 1 << 14
_SERVER_NAME, _ENCRYPTED_CLIENT_HELLO = 0, 0xFE0D
_HOST_NAME = 0


class NotTls(Exception):
    """The bytes are no ClientHello; the text says why."""


@frozen
class ClientHello:
    """What is of interest in it."""

    server_name: str | None
    """As the client wrote it; None if it says none."""
    has_ech: bool = False
    """Whether it holds an encrypted ClientHello (or what is sent in its stead at random), which may name another."""


def is_tls(data: bytes) -> bool:
    """Whether a stream that begins so is TLS."""
    return data[:1] == bytes((_HANDSHAKE,))


class HelloReader:
    """Reads the ClientHello that a stream begins with, over however many records and pieces it is spread.

    No byte is looked at twice: who sends it in crumbs takes no more of our time than who does not.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._message = bytearray()
        self._came = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Take more of the stream; the ClientHello, once it is whole.

        Raises:
            NotTls: It is something else, or one that nobody would send.
        """
        self._rest += data
        self._came += len(data)
        while (record := self._next_record()) is not None:
            self._message += record
            if len(self._message) < _MESSAGE_HEAD:
                continue
            size = int.from_bytes(self._message[1:_MESSAGE_HEAD])
            if self._message[0] != _CLIENT_HELLO or size > LIMIT_BYTES:
                raise NotTls("its first message is no ClientHello")
            if len(self._message) >= _MESSAGE_HEAD + size:
                return _parse(bytes(self._message[_MESSAGE_HEAD : _MESSAGE_HEAD + size]))
        if self._came > LIMIT_BYTES:
            raise NotTls(f"its ClientHello is longer than {LIMIT_BYTES} bytes")
        return None

    def _next_record(self) -> bytes | None:
        """The content of the next record; None if it is not there yet."""
        rest = self._rest
        if rest and (rest[0] != _HANDSHAKE or (len(rest) > 1 and rest[1] != 3)):
            raise NotTls("it does not begin with a TLS handshake")
        if len(rest) < _RECORD_HEAD:
            return None
        length = int.from_bytes(rest[3:_RECORD_HEAD])
        if not 0 < length <= _LARGEST_RECORD:
            raise NotTls("it does not begin with a TLS handshake")
        if len(rest) < _RECORD_HEAD + length:
            return None
        record = bytes(rest[_RECORD_HEAD : _RECORD_HEAD + length])
        del rest[: _RECORD_HEAD + length]
        return record


class _Reader:
    """Takes fields off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def is_empty(self) -> bool:
        return self._place == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._place + count
        if end > len(self._data):
            raise NotTls("a field of its ClientHello is cut off")
        taken = self._data[self._place : end]
        self._place = end
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count))

    def vector(self, count: int) -> bytes:
        """Bytes after their length in `count` bytes."""
        return self.take(self.number(count))


def _parse(body: bytes) -> ClientHello:
    reader = _Reader(body)
    reader.take(2 + 32)  # version and random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    if reader.is_empty:
        return ClientHello(None)
    extensions = _Reader(reader.vector(2))
    if not reader.is_empty:
        raise NotTls("its ClientHello has something after its end")
    seen: set[int] = set()
    name: str | None = None
    while not extensions.is_empty:
        kind, value = extensions.number(2), extensions.vector(2)
        if kind in seen:
            raise NotTls("its ClientHello has an extension twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _server_name(value)
    return ClientHello(name, _ENCRYPTED_CLIENT_HELLO in seen)


def _server_name(value: bytes) -> str:
    outer = _Reader(value)
    names = _Reader(outer.vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or not names.is_empty or not outer.is_empty:
        raise NotTls("its ClientHello names several servers")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise NotTls("the server name in its ClientHello is no name") from None
