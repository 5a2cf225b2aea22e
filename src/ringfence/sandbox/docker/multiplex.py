"""The headers that an engine puts on a container's output (Docker Engine API, "ContainerAttach", stream format).

8 bytes before each piece of stdout or stderr: the kind, three zeros, the length, big-endian.
"""

import struct

from ringfence.sandbox.records import ProtocolError

_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR = 1, 2
_LARGEST = 16 * 1024 * 1024
_LAST_WORDS = 4096


class Demultiplexer:
    """Takes the engine's headers off: stdout is passed on, the end of stderr is kept."""

    def __init__(self) -> None:
        self.stderr = b""
        self._rest = b""
        self._kind = _STDOUT
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Stdout in the next bytes of the stream, however they are cut.

        Raises:
            ProtocolError: A header is none.
        """
        if not self._rest and self._kind == _STDOUT and len(data) <= self._left:
            self._left -= len(data)
            return data
        data = self._rest + data
        stdout, position, end = [], 0, len(data)
        while True:
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            if self._kind == _STDOUT:
                stdout.append(piece)
            else:
                self.stderr = (self.stderr + piece)[-_LAST_WORDS:]
            if self._left or end - position < _HEADER.size:
                break
            self._kind, self._left = _HEADER.unpack_from(data, position)
            if self._kind not in (_STDOUT, _STDERR) or self._left > _LARGEST:
                raise ProtocolError(f"came with a header that is none: {data[position : position + 8]!r}")
            position += _HEADER.size
        self._rest = data[position:]
        return b"".join(stdout)
