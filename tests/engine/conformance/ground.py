"""What a check is, and what it is given."""

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
    """An executor in a process of its own, or in what stands for one."""

    id: str

    async def kill(self) -> None:
        """By SIGKILL."""

    async def leave(self) -> None:
        """By SIGTERM, and in order."""

    async def pause(self) -> None:
        """By SIGSTOP."""

    async def go_on(self) -> None:
        """By SIGCONT."""

    async def ended(self) -> None:
        """Wait until it is gone."""


class Ground(Protocol):
    """One database, empty at first."""

    folder: Path
    """For files of the checks."""

    def open(self) -> AbstractAsyncContextManager[Engine]:
        """An engine that is no executor."""

    def start(
        self, *, concurrency: int = 8, recoveries: int = 5, edition: int = 1
    ) -> AbstractAsyncContextManager[Worker]:
        """Start an executor of `workflows`."""


Check = Callable[[Ground], Awaitable[None]]
"""One promise, as its docstring says it; an `AssertionError` means that it was broken."""


class Notes:
    """What workflows of a check have done, in a file that outlives them.

    Args:
        ground: Where.
        name: Of the workflow, and of the file.
    """

    def __init__(self, ground: Ground, name: str) -> None:
        self.path = ground.folder / name
        self.argument = {"notes": str(self.path)}

    @property
    def lines(self) -> list[str]:
        """What is noted, in order."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def open_gate(self) -> None:
        """Let go on who waits."""
        self.path.with_suffix(".open").touch()

    async def until(self, line: str, *, times: int = 1) -> None:
        """Wait for a note."""
        with anyio.fail_after(_PATIENCE_S):
            while self.lines.count(line) < times:  # noqa: ASYNC110 -- what writes it is another process
                await anyio.sleep(0.02)


async def until(engine: Engine, id: str, *states: WorkflowState) -> WorkflowStatus:
    """Wait until a workflow is in one of these states; the ends, if none is named."""
    with anyio.fail_after(_PATIENCE_S):
        while True:
            status = await engine.get(id)
            if status is not None and (status.state in states or (not states and status.state.is_end)):
                return status
            await anyio.sleep(0.02)


async def error_of(kind: type[Caught], act: Awaitable[object]) -> Caught:
    """The error of this kind that an act ends in; anything else breaks the promise."""
    try:
        came = await act
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {came!r}")
