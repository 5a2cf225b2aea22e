"""The model as those inside had it once: the gateway of a replay, which answers from the record."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ringfence.egress.gateway.provided import environment_inside, kinds_inside
from ringfence.egress.gateway.recorded import Asking, RecordedUpstream
from ringfence.egress.gateway.serving import opened_door
from ringfence.events import Event, ModelReplied, SandboxCreated
from ringfence.job.model_access import ModelAccess
from ringfence.job.recorder import View
from ringfence.runtime.differing import value_difference
from ringfence.runtime.volatile import masked
from ringfence.sandbox import Sandbox, SandboxSpec

_WORKS = ("agent", "exec")


class ReplayedModel:
    """Serves what was asked through the gateway once more; with no `access` there is none, and nothing to ask.

    Args:
        events: Of the run, in order; bodies in place.
        access: What those inside could ask.
        is_exact: A request must be the recorded one to the byte; otherwise durations, times and the like may differ.
    """

    def __init__(self, events: Iterable[Event], access: ModelAccess | None, *, is_exact: bool) -> None:
        events = tuple(events)
        self._access = access
        self._upstream = RecordedUpstream(events, alike=None if is_exact else masked)
        self._kinds = kinds_inside(_environment(events))

    @property
    def served(self) -> int:
        """How many requests were answered from the record."""
        return self._upstream.served

    @property
    def tolerated(self) -> list[str]:
        """Differences of requests that were passed over."""
        return [
            f"request {_number(one)} to the model: {_difference(one, exact=True)}"
            for one in self._upstream.passed_over
        ]

    @property
    def unknown(self) -> str | None:
        """The first request that the record has no answer to, and which one was to be expected; None if all had one."""
        first = next(iter(self._upstream.unknown), None)
        if first is None:
            return None
        asked = f"a process inside asked the model {first.method} {first.path}"
        if first.exchange is None:
            return f"{asked}, and the record has no further request"
        asked += f", expected was request {_number(first)} ({first.exchange.asked.path})"
        if not first.exchange.is_kept:
            return f"{asked}, whose answer was too long to be kept in the record"
        return f"{asked}: {_difference(first, exact=False)}"

    @property
    def missing(self) -> str | None:
        """The first recorded request that nobody has made; None if all were, but for those that nobody waited for."""
        missing = [one for one in self._upstream.remaining if one.is_whole]
        if not missing:
            return None
        first = missing[0].asked
        return f"request {first.exchange} to the model ({first.method} {first.path}) was not made again"

    @property
    def on_unknown(self) -> Callable[[], None]:
        """Called at the first request that the record has no answer to."""
        return self._upstream.on_unknown

    @on_unknown.setter
    def on_unknown(self, call: Callable[[], None]) -> None:
        self._upstream.on_unknown = call

    def count(self, event: Event) -> None:
        """Take from the budget what the agent's own loop had used: what is left bounds the requests from inside."""
        if self._access is not None and isinstance(event, ModelReplied):
            charge = self._access.budget.begin(event.model)
            charge.update(event.usage)
            charge.end()

    def spec_for(self, spec: SandboxSpec) -> SandboxSpec:
        """The sandbox, with the variables by which clients inside find the gateway."""
        if self._access is None:
            return spec
        return spec.model_copy(update={"env": {**environment_inside(self._kinds), **spec.env}})

    @asynccontextmanager
    async def door(self, sandbox: Sandbox, emit: View) -> AsyncIterator[None]:
        """Let processes of a sandbox ask."""
        if self._access is None:
            yield
            return
        async with opened_door(self._access.replaying(self._upstream, self._kinds), sandbox, emit):
            yield


def _environment(events: Iterable[Event]) -> tuple[str, ...]:
    """Names of the variables in the sandbox where the work was done."""
    for event in events:
        if isinstance(event, SandboxCreated) and event.purpose in _WORKS:
            names = event.policy.get("environment")
            return tuple(map(str, names)) if isinstance(names, list) else ()
    return ()


def _number(one: Asking) -> int:
    return one.exchange.asked.exchange if one.exchange is not None else 0


def _difference(one: Asking, *, exact: bool) -> str:
    """Where a request differs from the one in the record."""
    recorded = one.exchange.asked.request if one.exchange is not None else None
    if recorded is None:
        return "it is another one" if one.body else f"expected was {_expected(one)}"
    shown = str if exact else masked
    before, after = _read(recorded), _read(one.body.decode("utf-8", "replace"))
    return value_difference(before, after, shown) or "it is another one"


def _expected(one: Asking) -> str:
    return one.exchange.asked.path if one.exchange is not None else "nothing"


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text
