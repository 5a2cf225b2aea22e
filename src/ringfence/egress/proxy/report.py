"""Reports decisions to the record, to the user or agent that runs the command, and to the client in a response."""

import re
from typing import Protocol

from ringfence.config.host import format_host
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.proxy.connector import Route
from ringfence.egress.proxy.decision import Decision, Grant, Target
from ringfence.events import EgressDecided, Emit

_PHRASE_CHARS = 160
_UNPRINTABLE = re.compile(rb"[^ -~]")
_RECORDED_EACH = 5
_COUNTED_KINDS = 1000
_PATH_CHARS = 500
_SHOWN_ADDRESSES = 4


class NoteRefusal(Protocol):
    """Takes a line for the user or agent that runs the command."""

    def __call__(self, line: str, grant: Grant | None = None) -> None:
        """Add a line about a refusal, with the grant that would allow it, or about a failure, without one."""


class DecisionLog:
    """Records the decisions of one sandbox's proxy: equal refusals five times, then when their number doubles.

    A loop inside can request a refused host forever; the record shows that without growing with every request.

    Args:
        sandbox_id: The sandbox.
        emit: Writes an event to the record; returns when it is written.
        note: Takes a line for each refusal, for the user or agent that runs the command.
    """

    def __init__(self, sandbox_id: str, emit: Emit, note: NoteRefusal) -> None:
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._note = note
        self._counts: dict[tuple[str, str, int, str], int] = {}

    async def record(
        self, number: int, target: Target | None, decision: Decision, *, route: Route | None = None
    ) -> None:
        """Record a decision; returns when it is written."""
        repeated = 1
        if not decision.is_allowed:
            line = "; ".join(filter(None, (decision.reason[:_PATH_CHARS], decision.remedy)))
            self._note(line, decision.grant)
            repeated = self._count(target, decision)
            if repeated > _RECORDED_EACH and repeated & (repeated - 1):
                return
        await self._emit(
            EgressDecided(
                sandbox_id=self._sandbox_id,
                connection=number,
                allowed=decision.is_allowed,
                method=target.method if target else "",
                host=format_host(target.host) if target else "",
                port=target.port if target else 0,
                path=target.path[:_PATH_CHARS] if target else "",
                rule=decision.rule,
                reason=decision.reason[:_PATH_CHARS],
                remedy=decision.remedy,
                address=", ".join(str(one) for one in route.addresses[:_SHOWN_ADDRESSES]) if route else "",
                through=route.through.shown if route and route.through else "",
                repeated=repeated,
            )
        )

    def note_failure(self, target: Target, reason: str) -> None:
        """Note why an allowed host cannot be reached; the record has it with the end of the connection."""
        self._note(f"{target.authority} cannot be reached: {reason}")

    def _count(self, target: Target | None, decision: Decision) -> int:
        key = (
            (decision.rule, format_host(target.host), target.port, target.method)
            if target
            else ("", "", 0, "")
        )
        if key not in self._counts and len(self._counts) >= _COUNTED_KINDS:
            key = ("others", "", 0, "")
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]


async def send_refusal(connection: HttpConnection, decision: Decision, *, status: int = 403) -> None:
    """Respond to a refused request with the reason in forms for people, agents and programs."""
    lines = [f"ringfence: refused: {decision.reason}", f"decided by: {decision.rule}"]
    if decision.remedy:
        lines.append(decision.remedy)
    await _send(connection, status, f"ringfence: {decision.reason}", lines, "http_request_denied")


async def send_failure(connection: HttpConnection, reason: str) -> None:
    """Respond to an allowed request that failed."""
    await _send(connection, 502, f"ringfence: {reason}", [f"ringfence: {reason}"], "destination_unavailable")


async def _send(connection: HttpConnection, status: int, phrase: str, lines: list[str], error: str) -> None:
    # The reason is in the status line, too: clients show nothing else of a refused CONNECT.
    shown = _UNPRINTABLE.sub(b"?", phrase.encode("ascii", "replace"))[:_PHRASE_CHARS].rstrip()
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Proxy-Status": f"ringfence; error={error}",  # RFC 9209
    }
    await connection.respond(status, headers, ("\n".join(lines) + "\n").encode(), reason=shown)
