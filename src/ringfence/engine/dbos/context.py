"""What a workflow does durably, by DBOS."""

from collections.abc import Awaitable, Callable
from typing import Any

from dbos import DBOS

from ringfence.engine.base import Context, Json, StepFailed
from ringfence.engine.plain import plain

_ERROR_LIMIT = 4000


def text_of(error: Exception) -> str:
    """An exception as it is kept."""
    return f"{type(error).__name__}: {error}"[:_ERROR_LIMIT]


class DbosContext(Context):
    """Of one run of a workflow."""

    def __init__(self, id: str) -> None:
        self.id = id

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """See `Context.step`."""

        async def kept() -> dict[str, Json]:
            try:
                return {"value": plain(await function(*arguments), what=f"the result of step {name!r}")}
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is remembered
                return {"error": text_of(error)}

        done = await DBOS.run_step_async({"name": name}, kept)
        if "error" in done:
            raise StepFailed(done["error"])
        return done["value"]

    async def sleep(self, seconds: float) -> None:
        """See `Context.sleep`."""
        await DBOS.sleep_async(seconds)
