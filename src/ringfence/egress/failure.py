"""Confines an unexpected error to the connection that caused it: it is recorded, and the run continues."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from ringfence.errors import RingfenceError, SandboxDied
from ringfence.events import ConnectionFailed, Emit

if TYPE_CHECKING:
    from ringfence.egress.gate import Listens, Serve

_MOST_KINDS = 100
"""Kinds of failures that are recorded; processes inside may find many ways to cause one."""

_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, SandboxDied)
_PACKAGE = Path(__file__).parents[1]


class ConfinedListener:
    """Listens in a sandbox; an unexpected error while a connection is served ends that connection only.

    Errors that must end the run are raised unchanged: the sandbox is gone, the record cannot be written, the gate's own
    `RingfenceError`. Any other error resets its connection, and is recorded once for each kind.

    Args:
        sandbox: The sandbox.
        emit: Writes an event to the record; returns when it is written.
    """

    def __init__(self, sandbox: "Listens", emit: Emit) -> None:
        self.id = sandbox.id
        self._sandbox = sandbox
        self._emit = emit
        self._recorded: set[tuple[str, str, str]] = set()

    def listen(
        self, serve: "Serve", *, port: int | None = None, unix: str | None = None, limit: int = 200
    ) -> AbstractAsyncContextManager[object]:
        """See `Sandbox.listen`."""

        async def serve_confined(stream: ByteStream) -> None:
            try:
                await serve(stream)
            except Exception as exc:  # noqa: BLE001 -- the boundary of a connection, which records or raises
                await self._end_connection(f"port {port}" if unix is None else unix, exc)

        return self._sandbox.listen(serve_confined, port=port, unix=unix, limit=limit)

    async def _end_connection(self, listener: str, error: Exception) -> None:
        """Record an unexpected error, and raise an error that resets the connection or ends the run."""
        causes = list(_leaves(error))
        for cause in causes:
            if isinstance(cause, RingfenceError) and not isinstance(cause, SandboxDied):
                raise cause
        for cause in causes:
            if not isinstance(cause, _LOST):
                await self._record(listener, type(cause).__name__, _place_of(cause) or _place_of(error))
        raise anyio.BrokenResourceError from error

    async def _record(self, listener: str, name: str, place: str) -> None:
        kind = (listener, name, place)
        if kind in self._recorded or len(self._recorded) >= _MOST_KINDS:
            return
        self._recorded.add(kind)
        # Without the error's text, which may contain data of the connection.
        await self._emit(ConnectionFailed(sandbox_id=self.id, listener=listener, error=name, place=place))
        self._sandbox.refusals.add(
            f"a connection to {listener} ended by an internal error of ringfence ({name} in {place})"
        )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from _leaves(one)


def _place_of(error: BaseException) -> str:
    """Return the innermost line of this package in an error's traceback; empty if there is none."""
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f"{path.relative_to(_PACKAGE)}:{frame.lineno}"
    return ""
