"""A running container with the guest in it: finds why it ended, and kills its processes, also without its engine."""

import json
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from ringfence.process import start_time
from ringfence.sandbox.base import EndReason, Facts, Fence
from ringfence.sandbox.container.hardened_container import KILLED_CODE, SILENCE_LIMIT_S, end_reason
from ringfence.sandbox.docker.attach import AttachStream
from ringfence.sandbox.docker.client import Engine, EngineError
from ringfence.sandbox.docker.failure import explain

_ANSWER_S = 20.0
_POLL_S = 0.1
_LATE_S = 0.5
"""How long Docker is given to report that memory ran out, after it reported that the container ended."""
_SELF_END_S = SILENCE_LIMIT_S + 5.0
"""Time after which a guest that receives nothing has exited."""


@dataclass(eq=False)
class DockerFence(Fence):
    """A running container with the guest in it."""

    facts: Facts
    stream: AttachStream
    container: str
    engine: Engine
    is_engines_owner: bool
    """Whether the session on the engine ends with the fence."""
    _is_killed: bool = False
    _killing: anyio.Lock = field(default_factory=anyio.Lock)
    _has_ended: bool = False
    _left: str | None = None

    async def wait(self) -> EndReason:
        """Wait until the container is no longer running."""
        if self._is_killed:
            return EndReason("killed", "it was closed", self._stderr())
        try:
            await self.engine.wait(self.container)
            self._has_ended = True
            state = await end_state(self.engine, self.container)
        except EngineError as exc:
            if exc.is_absent:
                return EndReason("killed", "its container was removed from outside", self._stderr())
            return EndReason("engine", f"the container engine is gone: {exc}")
        end = end_reason(
            int(state.get("ExitCode") or 0),
            is_out_of_memory=bool(state.get("OOMKilled")),
            said=str(state.get("Error") or ""),
        )
        return replace(end, stderr=self._stderr())

    def _stderr(self) -> str:
        return explain(self.stream.stderr.decode("utf-8", "replace"))

    async def kill(self) -> str | None:
        """Close the stream, and kill and remove the container; if that fails, it is found later by its labels."""
        is_first, self._is_killed = not self._is_killed, True
        async with self._killing:  # a second caller waits until it is done
            if is_first:
                with anyio.CancelScope(shield=True):  # else a second caller returns with something alive
                    await self._kill()
        return self._left

    async def _kill(self) -> None:
        try:
            # First, as an engine does not end a container while it holds output that is not read.
            await self.stream.aclose()
            self._left = await self._remove()
        finally:
            if self.is_engines_owner:
                await self.engine.aclose()

    async def _remove(self) -> str | None:
        """Remove the container; if that fails, return a note that says how far its processes are known to be dead."""
        try:
            with anyio.fail_after(_ANSWER_S):
                await self.engine.remove(self.container)
            return None
        except TimeoutError:
            failure = f"no answer within {_ANSWER_S:g} s"
        except EngineError as exc:
            failure = str(exc)
        if self._has_ended:
            return None
        name = f"container {self.container[:12]} could not be removed"
        is_local = self.engine.address.shares_files
        if is_local and await end_processes(self.container, within_s=_SELF_END_S):
            return f"{name} ({failure}); its processes were ended without the engine"
        return (
            f"{name} and may still run and write to the workspace ({failure}); its guest ends it when it hears nothing "
            f"for {SILENCE_LIMIT_S:g} s; look at the engine, and once it answers `ringfence gc` removes what is left"
        )


async def end_state(engine: Engine, container: str) -> Mapping[str, Any]:
    """The state of a container that has ended, with `OOMKilled` true if its memory ran out.

    Docker learns of the two from the kernel separately. If the end is reported first, `OOMKilled` stays false in the
    state, and only the engine's events show that memory ran out.
    """
    state: Mapping[str, Any] = (await engine.inspect(container)).get("State") or {}
    is_unexplained = state.get("ExitCode") == KILLED_CODE and not state.get("OOMKilled")
    if not is_unexplained or engine.facts.is_podman:
        return state
    try:
        began, ended = (datetime.fromisoformat(str(state[name])) for name in ("StartedAt", "FinishedAt"))
        is_late = await _ran_out_of_memory(engine, container, began.timestamp(), ended.timestamp() + _LATE_S)
    except (KeyError, ValueError, EngineError):
        return state  # an engine that reports neither time
    return {**state, "OOMKilled": is_late}


async def _ran_out_of_memory(engine: Engine, container: str, since_s: float, until_s: float) -> bool:
    """Whether an event between two times of the engine reports it; wait for one to arrive."""
    filters = json.dumps({"container": [container], "event": ["oom"]})
    asked = {"since": f"{since_s:.6f}", "until": f"{until_s:.6f}", "filters": filters}
    async with engine.stream("ask for the container's events", "GET", "/events", params=asked) as lines:
        return bool(await lines.readline())


async def end_processes(container: str, *, within_s: float) -> bool:
    """Kill every process of a container that can be seen and may be killed.

    They are identified by their control group, whose path contains the container's id; processes of an engine in a
    virtual machine or on another machine cannot be seen here.

    Args:
        container: Its id.
        within_s: How long to wait for those that may not be killed, or cannot be seen, to end by themselves.

    Returns:
        Whether some were seen and none is left. If none was ever seen, there may still be some.
    """
    were_seen = False
    with anyio.move_on_after(within_s):
        while True:
            if await anyio.to_thread.run_sync(_kill_all, container):
                were_seen = True
            elif were_seen:
                return True
            await anyio.sleep(_POLL_S)
    return False


def _kill_all(container: str) -> int:
    """Kill the processes of a container; return how many there were."""
    pattern = re.compile(rf"/(?:docker-|libpod-)?{re.escape(container)}(?:\.scope)?(?:/|$)", re.MULTILINE)
    found = 0
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Checked after opening the handle: the process number may have been reused.
            # Other users choose the names of their groups, which can hold any bytes.
            is_inside = pattern.search(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
            if is_inside and start_time(pid) is not None:
                found += 1
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            continue  # it is gone, or another user's, and is waited for
        finally:
            os.close(handle)
    return found
