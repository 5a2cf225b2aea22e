"""Defines the engine's conformance checks, and helpers for them."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from ringfence.engine import WorkflowState, WorkflowStatus
from ringfence.engine.client import Engine

Caught = TypeVar("Caught", bound=Exception)
_PATIENCE_S = 40.0


class Worker(Protocol):
    """An executor, usually in a process of its own."""

    id: str

    async def kill(self) -> None:
        """Kill it (SIGKILL)."""

    async def leave(self) -> None:
        """Let it leave (SIGTERM)."""

    async def pause(self) -> None:
        """Suspend it (SIGSTOP)."""

    async def go_on(self) -> None:
        """Resume it (SIGCONT)."""

    async def ended(self) -> None:
        """Wait until it has ended."""


class Ground(Protocol):
    """One database, empty at first."""

    folder: Path
    """A directory for files of the checks."""

    def open(self) -> AbstractAsyncContextManager[Engine]:
        """Open an engine that is no executor."""

    def start(
        self, *, concurrency: int = 8, recoveries: int = 5, edition: int = 1
    ) -> AbstractAsyncContextManager[Worker]:
        """Start an executor of `workflows`."""


Check = Callable[[Ground], Awaitable[None]]
"""One promise, which the check's docstring states; an `AssertionError` means that it was broken."""


class Notes:
    """Notes that a check's workflows write, in a file that outlives them.

    Args:
        ground: The ground of the check.
        name: The name of the file, which is also the workflow's id.
    """

    def __init__(self, ground: Ground, name: str) -> None:
        self.path = ground.folder / name
        self.argument = {"notes": str(self.path)}

    @property
    def lines(self) -> list[str]:
        """The notes, in order."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def open_gate(self) -> None:
        """Release the workflows that wait."""
        self.path.with_suffix(".open").touch()

    async def until(self, line: str, *, times: int = 1) -> None:
        """Wait for a note."""
        with anyio.fail_after(_PATIENCE_S):
            while self.lines.count(line) < times:  # noqa: ASYNC110 -- another process writes it
                await anyio.sleep(0.02)


async def until(engine: Engine, id: str, *states: WorkflowState) -> WorkflowStatus:
    """Wait until a workflow is in one of these states, or has ended if none is given."""
    with anyio.fail_after(_PATIENCE_S):
        while True:
            status = await engine.get(id)
            if status is not None and (status.state in states or (not states and status.state.is_end)):
                return status
            await anyio.sleep(0.02)


async def error_of(kind: type[Caught], act: Awaitable[object]) -> Caught:
    """Return the error of this kind that an operation raises; any other outcome breaks the promise."""
    try:
        came = await act
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {came!r}")
