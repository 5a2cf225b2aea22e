"""A TLS connection as a stream like any other."""

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.egress.pump import CutOff

_READ = 65_536
_LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Sealed(ByteStream):
    """TLS whose faults are those of any connection."""

    def __init__(self, tls: TLSStream) -> None:
        self._tls = tls

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Bytes, opened."""
        try:
            return await self._tls.receive(max_bytes)
        except (OSError, CutOff) as exc:
            raise anyio.BrokenResourceError from exc

    async def send(self, item: bytes) -> None:
        """Bytes, to be sealed."""
        try:
            await self._tls.send(item)
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """Nothing: TLS ends both ways at once."""

    async def say_goodbye(self) -> None:
        """Tell the other side that this is all, so that it does not take it for a cut."""
        try:
            await self._tls.unwrap()
        except _LOST:
            return

    async def aclose(self) -> None:
        """Let go of it."""
        await anyio.aclose_forcefully(self._tls)
