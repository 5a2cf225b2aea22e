"""The workflows that the checks run."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from ringfence.engine import Context, Json, StepFailed, Workflow


def _note(argument: dict[str, Any], line: str) -> None:
    fd = os.open(argument["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


async def _noted(argument: dict[str, Any], line: str) -> Json:
    _note(argument, line)
    return line


async def _hold(argument: dict[str, Any]) -> Json:
    _note(argument, "hold")
    gate = anyio.Path(Path(argument["notes"]).with_suffix(".open"))
    try:
        while not await gate.exists():  # noqa: ASYNC110 -- another process opens it
            await anyio.sleep(0.02)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)
            _note(argument, "cleaned up")
        raise
    return "held"


async def _echo(_: Context, argument: Json) -> Json:
    return argument


async def _steps(context: Context, argument: Json) -> Json:
    return [await context.step(f"number {one}", _noted, argument, str(one)) for one in range(5)]


async def _gated(context: Context, argument: Json) -> Json:
    await context.step("first", _noted, argument, "first")
    held = await context.step("hold", _hold, argument)
    await context.step("last", _noted, argument, "last")
    return held


async def _gated_otherwise(context: Context, argument: Json) -> Json:
    held = await _gated(context, argument)
    await context.step("more", _noted, argument, "more")
    return held


async def _fail(argument: dict[str, Any]) -> Json:
    _note(argument, "failing")
    raise ValueError("no good")


async def _fails(context: Context, argument: Json) -> Json:
    return await context.step("fail", _fail, argument)


async def _catches(context: Context, argument: Json) -> Json:
    try:
        await context.step("fail", _fail, argument)
    except StepFailed as failed:
        await context.step("hold", _hold, argument)
        return str(failed)
    return "it did not fail"


async def _no_json(argument: dict[str, Any]) -> Json:
    _note(argument, "no json")
    return {"a", "set"}


async def _step_without_json(context: Context, argument: Json) -> Json:
    return await context.step("no json", _no_json, argument)


async def _result_without_json(_: Context, argument: Json) -> Json:
    return await _no_json(argument)


async def _sleeps(context: Context, argument: Json) -> Json:
    _note(argument, "asleep")
    await context.sleep(argument["seconds"])
    return "awake"


def workflows(die: Callable[[], None], *, edition: int = 1) -> dict[str, Workflow]:
    """Return all workflows, by name.

    Args:
        die: Kills the executor that calls it.
        edition: Version of the code; 2 differs in `gated`.
    """

    async def drop(argument: dict[str, Any]) -> Json:
        _note(argument, "dying")
        die()
        await anyio.sleep_forever()
        return None

    async def poison(context: Context, argument: Json) -> Json:
        return await context.step("die", drop, argument)

    return {
        "echo": _echo,
        "steps": _steps,
        "gated": _gated if edition == 1 else _gated_otherwise,
        "fails": _fails,
        "catches": _catches,
        "step without json": _step_without_json,
        "result without json": _result_without_json,
        "sleeps": _sleeps,
        "poison": poison,
    }
