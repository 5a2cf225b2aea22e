"""What the steps of a loop ask of the engine, whether its database is there just now or not."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from ringfence.engine.base import Engine, Json, WorkflowStatus
from ringfence.errors import InfrastructureFault

_AGAIN_S = 0.5
_T = TypeVar("_T")


class Workflows:
    """Of a loop.

    Args:
        engine: Where they are.
        is_patient: Whether to wait, until cancelled, while its database is away.
    """

    def __init__(self, engine: Engine, *, is_patient: bool) -> None:
        self._engine = engine
        self._is_patient = is_patient

    async def enqueue(self, workflow: str, *, id: str, argument: Json = None) -> None:
        """See `Engine.enqueue`."""
        await self._ask(lambda: self._engine.enqueue(workflow, id=id, argument=argument))

    async def list(self, *, ids: Sequence[str]) -> "list[WorkflowStatus]":
        """See `Engine.list`."""
        return await self._ask(lambda: self._engine.list(ids=ids))

    async def get(self, id: str) -> WorkflowStatus | None:
        """See `Engine.get`."""
        return await self._ask(lambda: self._engine.get(id))

    async def _ask(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await ask()
            except InfrastructureFault:
                if not self._is_patient:
                    raise
            await anyio.sleep(_AGAIN_S)
