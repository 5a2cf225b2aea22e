"""Why a container ended, by its engine's account."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ringfence.sandbox.base import EndReason
from ringfence.sandbox.docker.client import Engine, EngineError

_KILLED_CODE = 128 + 9
_LATE_S = 0.5
"""How long Docker is given to tell that memory ran out, after it told that the container ended."""


async def why_it_ended(engine: Engine, container: str) -> Mapping[str, Any]:
    """The state of a container that does not run any more, with `OOMKilled` true if its memory ran out.

    Docker hears of both from the kernel by two ways. Where word of the end comes first, the state keeps saying that no
    memory ran out; only its events tell.

    Raises:
        EngineError: The engine cannot say.
    """
    state: Mapping[str, Any] = (await engine.inspect(container)).get("State") or {}
    is_unexplained = state.get("ExitCode") == _KILLED_CODE and not state.get("OOMKilled")
    if is_unexplained and not engine.facts.is_podman and await _is_told_later(engine, container, state):
        return {**state, "OOMKilled": True}
    return state


async def _is_told_later(engine: Engine, container: str, state: Mapping[str, Any]) -> bool:
    try:
        began, ended = (datetime.fromisoformat(str(state[name])) for name in ("StartedAt", "FinishedAt"))
        return await engine.has_event(
            container, "oom", since_s=began.timestamp(), until_s=ended.timestamp() + _LATE_S
        )
    except (KeyError, ValueError, EngineError):
        return False  # an engine that tells neither time: what it said stands


def death_of(state: Mapping[str, Any], words: str) -> EndReason:
    """Why a container ended, by the engine's account of its state."""
    code = int(state.get("ExitCode") or 0)
    if state.get("OOMKilled") and code == _KILLED_CODE:
        return EndReason("memory", "the memory limit killed it")
    if code == _KILLED_CODE:
        return EndReason("killed", "killed from outside")
    said = "; ".join(filter(None, (str(state.get("Error") or ""), words)))
    return EndReason("exited", f"its first process ended with code {code}" + (f": {said}" if said else ""))
