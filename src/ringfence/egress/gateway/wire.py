"""One connection to a model's API: HTTP/1.1, one exchange at a time, kept for the next.

A client for everything takes longer for a request than the network in between: cookies, redirects, traces and ways of
writing a body, of which nothing is needed here. The parser is C; what it is given is bounded.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import cast

import httptools

_MOST_SILENT_BYTES = 64 * 1024
"""That may come without being a piece of a body: heads, trailers, extensions of chunks."""

_HIGH_BYTES = 256 * 1024
"""Of a body, unread; then nothing more is taken from the network."""

_JOIN_BELOW = 256 * 1024
_INFLATED = 256 * 1024
"""Of one piece of a body that was compressed although nobody asked for that."""

_INFLATABLE = ("gzip", "x-gzip", "deflate")
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS


class WireError(OSError):
    """The connection broke off, or what came over it is no answer."""


class Wire(asyncio.Protocol):
    """A connection, once it is made.

    Args:
        silent_s: How long the other side may say nothing while something is waited for.
        on_lost: Called once it is gone.
    """

    def __init__(self, *, silent_s: float, on_lost: "Callable[[Wire], None]") -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        """Names as they came."""
        self._silent_s = silent_s
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._silent_bytes = 0
        self._has_head = False
        self._has_body = False
        self._is_over = False
        self._may_be_kept = False
        self._inflating: zlib._Decompress | None = None
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """One for many waits: most are over at once."""
        self._is_paused = False

    # --- an exchange

    def ask(self, head: bytes, body: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self.status, self.headers = 0, []
        self._silent_bytes = 0
        self._has_head = self._has_body = self._is_over = self._may_be_kept = False
        self._inflating = None
        self._parser = httptools.HttpResponseParser(self)
        if len(body) < _JOIN_BELOW:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def wait_for_head(self) -> None:
        """Wait for the head of the answer.

        Raises:
            OSError, TimeoutError: There is none.
        """
        while not self._has_head:
            await self._news()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes.

        Raises:
            OSError, TimeoutError: It broke off.
        """
        while True:
            while not self._pieces and not self._is_over:
                await self._news()
            if not self._pieces:
                self._check_inflated()
                return
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._held_bytes = 0
            self._go_on()
            if self._inflating is None:
                yield piece
            else:
                for inflated in _inflated(self._inflating, piece):
                    yield inflated

    def _check_inflated(self) -> None:
        if self._inflating is not None and not self._inflating.eof and self._has_body:
            raise WireError("the compressed body ends in the middle")

    @property
    def is_free(self) -> bool:
        """Whether it may be asked once more: it was never asked, or the last answer was read to its end."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._error is not None:
            return False
        is_done = self._parser is None or (self._is_over and self._may_be_kept and not self._pieces)
        return is_done and transport.get_write_buffer_size() == 0

    def close(self) -> None:
        """Let go of it at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _news(self) -> None:
        """Wait until something has come."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        self._waits_since = self._loop.time()
        if self._alarm is None:
            self._alarm = self._loop.call_later(self._silent_s, self._on_alarm)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._waiter is None:
            return
        due = self._waits_since + self._silent_s
        if self._loop.time() >= due:
            self._fail(TimeoutError("nothing came any more"))
        else:
            self._alarm = self._loop.call_at(due, self._on_alarm)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        self._error = self._error or error
        self.close()
        self._wake()

    def _go_on(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)  # another event loop's is none by its class

    def data_received(self, data: bytes) -> None:
        """Bytes came; some that nobody asked for are none of an answer."""
        if self._parser is None or self._is_over:
            self._fail(WireError("it sent what was not asked for"))
            return
        self._silent_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(WireError("it changed the protocol"))
        except httptools.HttpParserError as exc:
            self._fail(WireError(f"what it sent is no HTTP ({exc or type(exc).__name__})"))
        if self._silent_bytes > _MOST_SILENT_BYTES:
            self._fail(WireError(f"a head is larger than {_MOST_SILENT_BYTES} bytes"))
        if self._held_bytes > _HIGH_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; an answer without a length ends so, unless it was us who gave it up."""
        if self._alarm is not None:
            self._alarm.cancel()
        is_ended = exc is None and self._error is None
        if self._has_head and not self._is_over and is_ended and not self._says_its_length():
            self._is_over = True
        if isinstance(exc, OSError):
            self._fail(exc)
        else:
            self._fail(WireError("it closed the connection in the middle"))
        self._on_lost(self)

    def _says_its_length(self) -> bool:
        return any(name.lower() in ("content-length", "transfer-encoding") for name, _ in self.headers)

    # --- what the parser calls

    def on_message_begin(self) -> None:
        """A head begins; there is one for an answer, and those that announce it."""
        if self._has_head:
            self._fail(WireError("it sent what was not asked for"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after the head, a trailer, which nobody reads."""
        if not self._has_head:
            self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """A head; one of a status below 200 is not yet that of the answer."""
        assert self._parser is not None
        if self._has_head:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200 and self.status != 101:
            self.headers.clear()
            return
        self._has_head = True
        self._silent_bytes = 0
        encoding = [value.lower() for name, value in self.headers if name.lower() == "content-encoding"]
        if encoding and encoding[-1] in _INFLATABLE:
            self._inflating = zlib.decompressobj(_ZLIB_OR_GZIP)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._is_over:
            return
        self._silent_bytes = 0
        self._has_body = True
        self._pieces.append(body)
        self._held_bytes += len(body)

    def on_message_complete(self) -> None:
        """The end of the answer."""
        assert self._parser is not None
        if self._has_head and not self._is_over:
            self._is_over = True
            self._may_be_kept = self._parser.should_keep_alive()


def _inflated(stream: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
    """What a piece of a compressed body stands for; in pieces, since few bytes can stand for very many."""
    try:
        while piece:
            inflated = stream.decompress(piece, _INFLATED)
            piece = stream.unconsumed_tail
            if inflated:
                yield inflated
    except zlib.error as exc:
        raise WireError(f"the body is not compressed as it says ({exc})") from exc
