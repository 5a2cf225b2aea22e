"""Reading and writing loops. Every write can be repeated without doing its work twice."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ringfence.database import Database
from ringfence.errors import UsageError
from ringfence.journal import new_run_id
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store.rows import COUNTED, EventRow, LoopRow, Spent, StepRow, StoryRow
from ringfence.loop.store.tables import EVENTS, LOOPS, METADATA, STEPS, STORIES


def open_database(url: str) -> Database:
    """The database of loops at a URL, its tables made.

    Raises:
        InfrastructureFault: It cannot be reached or written.
    """
    database = Database(url, METADATA, what="the loop's database")
    database.create_tables()
    return database


class LoopStore:
    """One loop.

    Args:
        database: Where it is.
        loop: Its id.
    """

    def __init__(self, database: Database, loop: str) -> None:
        self._database = database
        self.loop = loop

    async def create(self, row: LoopRow, stories: Sequence[StoryRow], steps: Sequence[StepRow] = ()) -> None:
        """Enter a loop, with steps that were done for it before; one that is there stays as it is."""

        def write(link: sa.Connection) -> None:
            if link.execute(sa.select(LOOPS.c.id).where(LOOPS.c.id == row.id)).first() is None:
                link.execute(sa.insert(LOOPS).values(**_values(row)))
                link.execute(sa.insert(STORIES), [_values(story) for story in stories])
                for step in steps:
                    values = {**_fields(step), "loop": row.id, "result": json.dumps(step.result)}
                    link.execute(sa.insert(STEPS).values(**values))

        await self._database.write(write)

    async def get(self) -> LoopRow:
        """The loop.

        Raises:
            UsageError: There is none.
        """
        found = await self._database.read(
            lambda link: link.execute(sa.select(LOOPS).where(LOOPS.c.id == self.loop)).mappings().first()
        )
        if found is None:
            raise UsageError(f"there is no loop {self.loop!r}; `ringfence loop ls` shows them")
        return LoopRow(**{**found, "state": LoopState(found["state"])})

    async def end(self, state: LoopState, reason: str) -> bool:
        """End it, unless it has ended; whether that was done."""
        query = (
            sa.update(LOOPS)
            .where(LOOPS.c.id == self.loop, LOOPS.c.state == LoopState.RUNNING.value)
            .values(state=state.value, reason=reason, ended_ms=now_ms())
        )
        return await self._database.write(lambda link: link.execute(query).rowcount == 1)

    async def go_on(self, configuration: str, *, is_resumed: bool) -> LoopRow:
        """Have a process work on it now: its time begins, and what was configured last holds.

        A loop that was only just started stays cancelled if somebody cancelled it meanwhile.
        """
        row = await self.begin_again() if is_resumed else await self.get()
        values: dict[str, Any] = {"configuration": configuration, "begun_ms": now_ms()}
        if is_resumed:
            values["is_cancel_asked"] = False
        query = sa.update(LOOPS).where(LOOPS.c.id == self.loop).values(**values)
        await self._database.write(lambda link: link.execute(query))
        return replace(row, configuration=configuration)

    async def cancel(self) -> bool:
        """End it as cancelled, though it has ended otherwise; False if nothing of it is left to be done."""
        over = (LoopState.SUCCEEDED.value, LoopState.INCOMPLETE.value, LoopState.CANCELLED.value)
        query = (
            sa.update(LOOPS)
            .where(LOOPS.c.id == self.loop, LOOPS.c.state.not_in(over))
            .values(state=LoopState.CANCELLED.value, reason="cancelled", ended_ms=now_ms())
        )
        return await self._database.write(lambda link: link.execute(query).rowcount == 1)

    async def begin_again(self) -> LoopRow:
        """Have a loop that ended go on in a further round."""
        query = (
            sa.update(LOOPS)
            .where(LOOPS.c.id == self.loop, LOOPS.c.state != LoopState.RUNNING.value)
            .values(
                state=LoopState.RUNNING.value,
                reason="",
                round=LOOPS.c.round + 1,
                record=new_run_id(),
                begun_ms=now_ms(),
                ended_ms=None,
                is_cancel_asked=False,
            )
        )
        await self._database.write(lambda link: link.execute(query))
        return await self.get()

    async def keep_plan(self, plan: str) -> None:
        """Write down its stories as they are now."""
        query = sa.update(LOOPS).where(LOOPS.c.id == self.loop).values(plan=plan)
        await self._database.write(lambda link: link.execute(query))

    async def ask_to_cancel(self) -> bool:
        """Have whoever works on it stop; False if it has ended."""
        query = (
            sa.update(LOOPS)
            .where(LOOPS.c.id == self.loop, LOOPS.c.state == LoopState.RUNNING.value)
            .values(is_cancel_asked=True)
        )
        return await self._database.write(lambda link: link.execute(query).rowcount == 1)

    async def stories(self) -> list[StoryRow]:
        """Its stories, in order."""
        query = sa.select(STORIES).where(STORIES.c.loop == self.loop).order_by(STORIES.c.position)
        found = await self._database.read(lambda link: link.execute(query).mappings().all())
        return [StoryRow(**{**row, "state": StoryState(row["state"])}) for row in found]

    async def story(self, story: str) -> StoryRow:
        """One of them.

        Raises:
            UsageError: There is none of this name.
        """
        found = next((row for row in await self.stories() if row.id == story), None)
        if found is None:
            names = ", ".join(row.id for row in await self.stories())
            raise UsageError(f"loop {self.loop!r} has no story {story[:80]!r}; it has {names}")
        return found

    async def change(self, story: str, **values: Any) -> None:
        """Write down where a story stands."""
        if isinstance(values.get("state"), StoryState):
            values["state"] = values["state"].value
        query = sa.update(STORIES).where(STORIES.c.loop == self.loop, STORIES.c.id == story).values(**values)
        await self._database.write(lambda link: link.execute(query))

    async def steps(self, story: str | None = None) -> list[StepRow]:
        """Steps, in the order of their beginning."""
        query = sa.select(STEPS).where(STEPS.c.loop == self.loop).order_by(STEPS.c.began_ms, STEPS.c.name)
        if story is not None:
            query = query.where(STEPS.c.story == story)
        found = await self._database.read(lambda link: link.execute(query).mappings().all())
        return [_step(dict(row)) for row in found]

    async def step(self, story: StoryRow, name: str) -> StepRow | None:
        """One of them, if it was begun."""
        query = sa.select(STEPS).where(*_is_step(self.loop, story, name))
        found = await self._database.read(lambda link: link.execute(query).mappings().first())
        return None if found is None else _step(dict(found))

    async def begin_step(
        self,
        story: StoryRow,
        name: str,
        *,
        run_id: str | None,
        role: str = "",
        attempt: int = 0,
        model: str = "",
    ) -> None:
        """A step is begun, or begun again: under another run's name.

        Of a step that was interrupted with its process, the time until now is not counted.
        """

        def write(link: sa.Connection) -> None:
            begun_ms = sa.select(LOOPS.c.begun_ms).where(LOOPS.c.id == self.loop).scalar_subquery()
            is_interrupted = sa.and_(STEPS.c.outcome.is_(None), STEPS.c.began_ms < begun_ms)
            began = sa.case((is_interrupted, now_ms()), else_=STEPS.c.began_ms)
            values = {"run_id": run_id, "model": model, "tries": STEPS.c.tries + 1, "outcome": None}
            values["began_ms"] = began
            again = sa.update(STEPS).where(*_is_step(self.loop, story, name)).values(**values)
            if link.execute(again).rowcount == 0:
                first = {
                    "loop": self.loop, "story": story.id, "generation": story.generation, "name": name,
                    "role": role, "attempt": attempt, "model": model, "run_id": run_id, "tries": 1,
                    "began_ms": now_ms(),
                }  # fmt: skip
                link.execute(sa.insert(STEPS).values(**first))

        await self._database.write(write)

    async def end_step(
        self,
        story: StoryRow,
        name: str,
        *,
        outcome: str,
        result: Mapping[str, Any],
        tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> None:
        """A step came to an end; what it took is added to what its earlier tries took."""
        values = {
            "outcome": outcome,
            "result": json.dumps(result),
            "ended_ms": now_ms(),
            "tokens": STEPS.c.tokens + tokens,
            "cost_usd": STEPS.c.cost_usd + cost_usd,
        }
        query = sa.update(STEPS).where(*_is_step(self.loop, story, name)).values(**values)
        await self._database.write(lambda link: link.execute(query))

    async def runs_of(self, story: StoryRow, names: Sequence[str]) -> list[str]:
        """The runs of some of a story's steps, in this order; of steps that were not done there are none."""
        found = {
            step.name: step.run_id
            for step in await self.steps(story.id)
            if step.generation == story.generation and step.run_id is not None
        }
        return [found[name] for name in names if name in found]

    async def add_spent(
        self, story: StoryRow, name: str, run_id: str, *, tokens: int, cost_usd: float
    ) -> None:
        """A try of a step took this, and came to nothing; its run is not counted again (`StepRow.is_counted`)."""
        values = {
            "tokens": STEPS.c.tokens + tokens,
            "cost_usd": STEPS.c.cost_usd + cost_usd,
            "result": json.dumps({COUNTED: run_id}),
        }
        query = sa.update(STEPS).where(*_is_step(self.loop, story, name)).values(**values)
        await self._database.write(lambda link: link.execute(query))

    async def spent(self) -> Spent:
        """What all runs of agents have used."""
        query = sa.select(
            sa.func.coalesce(sa.func.sum(STEPS.c.tries), 0),
            sa.func.coalesce(sa.func.sum(STEPS.c.tokens), 0),
            sa.func.coalesce(sa.func.sum(STEPS.c.cost_usd), 0.0),
        ).where(STEPS.c.loop == self.loop, STEPS.c.role != "")
        calls, tokens, cost = await self._database.read(lambda link: tuple(link.execute(query).one()))
        return Spent(int(calls), int(tokens), float(cost))

    async def tell(self, key: str, kind: str, *, story: str | None = None, **data: Any) -> None:
        """Something happened; what was told under a key once is not told again."""

        def write(link: sa.Connection) -> None:
            known = sa.select(EVENTS.c.number).where(EVENTS.c.loop == self.loop, EVENTS.c.key == key)
            if link.execute(known).first() is not None:
                return
            last = sa.select(sa.func.coalesce(sa.func.max(EVENTS.c.number), 0)).where(
                EVENTS.c.loop == self.loop
            )
            values = {
                "loop": self.loop, "number": link.execute(last).scalar_one() + 1, "key": key, "at_ms": now_ms(),
                "type": kind, "story": story, "data": json.dumps(data),
            }  # fmt: skip
            link.execute(sa.insert(EVENTS).values(**values))

        await self._database.write(write)

    async def events(self, after: int = 0) -> list[EventRow]:
        """What happened, after an event's number."""
        query = (
            sa.select(EVENTS.c.number, EVENTS.c.at_ms, EVENTS.c.type, EVENTS.c.story, EVENTS.c.data)
            .where(EVENTS.c.loop == self.loop, EVENTS.c.number > after)
            .order_by(EVENTS.c.number)
        )
        found = await self._database.read(lambda link: link.execute(query).mappings().all())
        return [EventRow(**{**row, "data": json.loads(row["data"])}) for row in found]


def now_ms() -> int:
    """The wall clock."""
    return int(time.time() * 1000)


def _is_step(loop: str, story: StoryRow, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    columns = STEPS.c
    return (
        columns.loop == loop,
        columns.story == story.id,
        columns.generation == story.generation,
        columns.name == name,
    )


def _values(row: LoopRow | StoryRow) -> dict[str, Any]:
    return {**_fields(row), "state": row.state.value}


def _fields(row: LoopRow | StoryRow | StepRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__}


def _step(row: Mapping[str, Any]) -> StepRow:
    fields = {name: row[name] for name in StepRow.__dataclass_fields__}
    return StepRow(**{**fields, "result": json.loads(row["result"] or "{}")})
