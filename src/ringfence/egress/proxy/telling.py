"""What the proxy tells the record: every leave, and of refusals as many as are of use; and those inside, why."""

from collections.abc import Callable

from ringfence.config.host import written
from ringfence.egress.forwarding import Emit
from ringfence.egress.proxy.decision import Decision, Wanted
from ringfence.egress.proxy.ways import Way
from ringfence.events import EgressDecided

_TOLD_ONE_BY_ONE = 5
_MOST_KINDS = 1000
_PATH_CHARS = 500
_SHOWN_ADDRESSES = 4


class Telling:
    """Emits decisions of one sandbox's proxy. The same refusal is told five times, then when its count doubles.

    A loop inside can ask for a refused host for ever; the record says so without growing with it.

    Args:
        sandbox_id: Whose proxy it is.
        emit: Records an event; returns when it is written.
        note: Takes a line for each refusal, for whoever runs the command.
    """

    def __init__(self, sandbox_id: str, emit: Emit, note: Callable[[str], None]) -> None:
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._note = note
        self._counts: dict[tuple[str, str, int, str], int] = {}

    async def decided(
        self,
        number: int,
        wanted: Wanted | None,
        decision: Decision,
        *,
        way: Way | None = None,
        has_ech: bool = False,
    ) -> None:
        """Tell a decision; returns when it is written."""
        repeated = 1
        if not decision.is_allowed:
            self._note("; ".join(filter(None, (decision.reason[:_PATH_CHARS], decision.remedy))))
            repeated = self._count(wanted, decision)
            if repeated > _TOLD_ONE_BY_ONE and repeated & (repeated - 1):
                return
        await self._emit(
            EgressDecided(
                sandbox_id=self._sandbox_id,
                connection=number,
                allowed=decision.is_allowed,
                method=wanted.method if wanted else "",
                host=written(wanted.host) if wanted else "",
                port=wanted.port if wanted else 0,
                path=wanted.path[:_PATH_CHARS] if wanted else "",
                rule=decision.rule,
                reason=decision.reason[:_PATH_CHARS],
                remedy=decision.remedy,
                address=", ".join(str(one) for one in way.targets[:_SHOWN_ADDRESSES]) if way else "",
                through=way.through.shown if way and way.through else "",
                repeated=repeated,
                has_ech=has_ech,
            )
        )

    def failed(self, wanted: Wanted, reason: str) -> None:
        """Tell those inside why a host that is allowed cannot be reached; the record has it with its end."""
        self._note(f"{wanted.target} cannot be reached: {reason}")

    def _count(self, wanted: Wanted | None, decision: Decision) -> int:
        key = (decision.rule, written(wanted.host), wanted.port, wanted.method) if wanted else ("", "", 0, "")
        if key not in self._counts and len(self._counts) >= _MOST_KINDS:
            key = ("others", "", 0, "")
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]
