"""The state of one loop: in memory, and in an SQLite file that the process working on the loop writes through to.

Only the process that holds the loop's lock writes (`open_store`), so it reads the file once and every later question is
answered from memory. A write is one transaction per transition and takes less than a millisecond on a local file,
therefore it is made on the event loop's own thread: handing it to another thread would take longer than the write.
Other processes read a consistent copy (`read_store`) or parts of it. Times are milliseconds since the epoch.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence.errors import InfrastructureFault, NotFound, UsageError
from ringfence.filesystem import keep_database_private
from ringfence.journal import new_run_id
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.rows import COUNTED, STAGES, EventRow, LoopRow, Spent, StepKey, StepRow, StoryRow
from ringfence.loop.state import LoopState, StoryState

_BUSY_S = 10
_TABLES = """
CREATE TABLE loops (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    plan TEXT NOT NULL, configuration TEXT NOT NULL, base TEXT NOT NULL, branch TEXT NOT NULL, record TEXT NOT NULL,
    round INTEGER NOT NULL DEFAULT 1, is_cancel_asked BOOLEAN NOT NULL DEFAULT 0, created_ms BIGINT NOT NULL,
    begun_ms BIGINT NOT NULL, ended_ms BIGINT
);
CREATE TABLE loop_stories (
    loop TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '', generation INTEGER NOT NULL DEFAULT 1, attempt INTEGER NOT NULL DEFAULT 0,
    stage TEXT NOT NULL DEFAULT '', slot INTEGER, base TEXT, tests TEXT, tip TEXT, merged TEXT,
    answer TEXT NOT NULL DEFAULT '', PRIMARY KEY (loop, id)
);
CREATE TABLE loop_steps (
    loop TEXT NOT NULL, story TEXT NOT NULL, generation INTEGER NOT NULL, name TEXT NOT NULL,
    role TEXT NOT NULL DEFAULT '', attempt INTEGER NOT NULL DEFAULT 0, model TEXT NOT NULL DEFAULT '', run_id TEXT,
    outcome TEXT, result TEXT, tokens BIGINT NOT NULL DEFAULT 0, cost_usd FLOAT NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0, began_ms BIGINT NOT NULL, ended_ms BIGINT,
    PRIMARY KEY (loop, story, generation, name)
);
CREATE TABLE loop_events (
    loop TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, at_ms BIGINT NOT NULL, type TEXT NOT NULL,
    story TEXT, data TEXT NOT NULL, PRIMARY KEY (loop, number)
);
CREATE UNIQUE INDEX loop_events_key ON loop_events (loop, key);
"""
"""The tables of version 0.1, so that each version can read the other's loops."""
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "loops": {"record_run_id": "record", "started_ms": "begun_ms"},
    "loop_stories": {"tests_commit": "tests", "code_commit": "tip", "merged_commit": "merged"},
    "loop_steps": {"started_ms": "began_ms"},
    "loop_events": {},
}
"""The columns whose names are not those of a row's fields: by table, field to column."""


class LoopStore:
    """The rows of one loop. A store returned by `read_store` has no connection and cannot be changed.

    Args:
        file: The SQLite file.
        loop_id: The loop's id.
        is_writable: Whether to keep the connection for changes.

    Raises:
        InfrastructureFault: The file cannot be read.
        NotFound: The file contains no such loop.
    """

    def __init__(self, file: Path, loop_id: str, *, is_writable: bool = True) -> None:
        self.loop_id = loop_id
        self._file = file
        self._listeners: list[Callable[[EventRow], None]] = []
        self._added: list[EventRow] = []
        self._is_in_transaction = False
        with _translated(file):
            self._connection = _connect(file, is_writable=is_writable)
            try:
                if not is_writable:  # a writer holds the loop's lock: nothing changes between its statements
                    self._connection.execute("BEGIN")
                self._load()
            except BaseException:
                self._connection.close()
                raise
            if not is_writable:
                self._connection.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _load(self) -> None:
        connection = self._connection
        self._loop = _read_loop(connection, self.loop_id)
        self._stories = {row.id: row for row in _read_stories(connection, self.loop_id)}
        steps = connection.execute("SELECT * FROM loop_steps WHERE loop = ?", (self.loop_id,))
        self._steps: dict[StepKey, StepRow] = {row.key: row for row in map(_step, steps)}
        events = _select_events(connection, self.loop_id, 0)
        self._events, self._event_keys = [*map(_event, events)], {row["key"] for row in events}

    @property
    def loop(self) -> LoopRow:
        """The loop."""
        return self._loop

    @property
    def stories(self) -> list[StoryRow]:
        """The stories, in their order."""
        return [*self._stories.values()]

    def story(self, name: str) -> StoryRow:
        """Return a story by its id.

        Raises:
            UsageError: The loop has no such story.
        """
        if name not in self._stories:
            raise UsageError(
                f"loop {self.loop_id!r} has no story {name[:80]!r}; it has {', '.join(self._stories)}"
            )
        return self._stories[name]

    def steps(self, story: str | None = None, *, generation: int | None = None) -> list[StepRow]:
        """Return steps in the order in which they began: all, those of a story, or those of one of its generations."""
        found = [
            step
            for step in self._steps.values()
            if story in (None, step.story) and generation in (None, step.generation)
        ]
        return sorted(found, key=lambda step: (step.started_ms, step.name))

    def step(self, key: StepKey) -> StepRow | None:
        """Return a step; None if it has not begun."""
        return self._steps.get(key)

    @property
    def events(self) -> list[EventRow]:
        """The loop's events, in order."""
        return [*self._events]

    @property
    def spent(self) -> Spent:
        """The usage of all agents' runs."""
        steps = [step for step in self._steps.values() if step.role]
        return Spent(
            sum(step.tries for step in steps),
            sum(step.tokens for step in steps),
            sum(step.cost_usd for step in steps),
        )

    def runs_of(self, story: StoryRow, names: Sequence[str]) -> list[str]:
        """Return the run ids of some of a story's steps, in this order; steps that have not begun are left out."""
        found = [self.step(story.key(name)) for name in names]
        return [step.run_id for step in found if step is not None and step.run_id is not None]

    def subscribe(self, listener: Callable[[EventRow], None]) -> None:
        """Call a function with each later event, once the event is in the file."""
        self._listeners.append(listener)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make several changes in one transaction. The body must not await anything.

        A change outside of this context is a transaction of its own.

        Raises:
            InfrastructureFault: The changes cannot be written; the store is then as it was before.
        """
        self.execute("BEGIN IMMEDIATE")
        self._is_in_transaction = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._added.clear()
            with _translated(self._file):
                self._connection.rollback()
                self._load()
            raise
        finally:
            self._is_in_transaction = False
        self._publish()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Write to the file. The caller changes the rows in memory afterwards."""
        with _translated(self._file):
            self._connection.execute(statement, [*map(_column, values)])

    def _update(self, table: str, where: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        columns = ", ".join(f"{_COLUMNS[table].get(name, name)} = ?" for name in values)
        condition = " AND ".join(f"{name} = ?" for name in where)
        statement = f"UPDATE {table} SET {columns} WHERE {condition}"  # noqa: S608 -- our own column names
        self.execute(statement, (*values.values(), *where.values()))

    def _publish(self) -> None:
        added, self._added = self._added, []
        for event in added:
            for listener in self._listeners:
                listener(event)

    def update_loop(self, **values: Any) -> LoopRow:
        """Change columns of the loop."""
        self._update("loops", {"id": self.loop_id}, values)
        self._loop = replace(self._loop, **values)
        return self._loop

    def update_story(self, name: str, **values: Any) -> StoryRow:
        """Change columns of a story."""
        known = self.story(name)
        changed = replace(known, **values)
        if changed != known:
            self._update("loop_stories", {"loop": self.loop_id, "id": name}, values)
            self._stories[name] = changed
        return changed

    def end(self, state: LoopState, reason: str) -> None:
        """Set the loop's final state, unless the loop has ended already."""
        if not self.loop.state.is_end:
            self.update_loop(state=state, reason=reason, ended_ms=now_ms())

    def begin_round(self) -> LoopRow:
        """Begin a new round, with its own record, of a loop that has ended; no effect on a running loop."""
        if not self.loop.state.is_end:
            return self.loop
        return self.update_loop(
            state=LoopState.RUNNING, reason="", round=self.loop.round + 1, record_run_id=new_run_id(),
            started_ms=now_ms(),
            ended_ms=None,
        )  # fmt: skip

    def begin_step(
        self, key: StepKey, *, run_id: str | None, role: str = "", attempt: int = 0, model: str = ""
    ) -> StepRow:
        """Begin a step, or begin it again with another run, and set its story's stage.

        A step whose process died in an earlier round gets a new start time, so that the time in between is not counted.
        """
        known, now = self.step(key), now_ms()
        stage = STAGES.get(key.name.partition(".")[0])
        if stage is not None and key.story:
            # Not in the step's transaction: no decision depends on the stage.
            of_code = {"attempt": attempt} if stage == "code" and role else {}
            self.update_story(key.story, stage=stage, **of_code)
        if known is None:
            step = StepRow(
                story=key.story, generation=key.generation, name=key.name, role=role, attempt=attempt, model=model,
                run_id=run_id, outcome=None, result={}, tokens=0, cost_usd=0.0, tries=1, started_ms=now, ended_ms=None,
            )  # fmt: skip
            return self._insert_step(step)
        is_interrupted = known.outcome is None and known.started_ms < self.loop.started_ms
        started_ms = now if is_interrupted else known.started_ms
        return self._update_step(
            known, run_id=run_id, model=model, tries=known.tries + 1, outcome=None, started_ms=started_ms
        )

    def end_step(
        self,
        key: StepKey,
        *,
        outcome: str,
        result: Mapping[str, Any],
        tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> StepRow:
        """End a step. Its usage is added to that of its earlier tries."""
        known = self._steps[key]
        return self._update_step(
            known, outcome=outcome, result=result, ended_ms=now_ms(),
            tokens=known.tokens + tokens, cost_usd=known.cost_usd + cost_usd,
        )  # fmt: skip

    def keep_step(
        self,
        key: StepKey,
        *,
        outcome: str,
        result: Mapping[str, Any],
        attempt: int = 0,
        run_id: str | None = None,
    ) -> StepRow:
        """Begin and end a step at once, replacing an earlier step with this key."""
        known, now = self.step(key), now_ms()
        if known is not None:
            return self._update_step(known, outcome=outcome, result=result, attempt=attempt, ended_ms=now)
        return self._insert_step(
            StepRow(
                story=key.story, generation=key.generation, name=key.name, role="", attempt=attempt, model="",
                run_id=run_id, outcome=outcome, result=result, tokens=0, cost_usd=0.0, tries=1, started_ms=now,
                ended_ms=now,
            )
        )  # fmt: skip

    def add_spent(self, step: StepRow, *, tokens: int, cost_usd: float) -> StepRow:
        """Add the usage of a step's failed try; its run is not counted again (see `StepRow.is_counted`)."""
        return self._update_step(
            step,
            tokens=step.tokens + tokens,
            cost_usd=step.cost_usd + cost_usd,
            result={COUNTED: step.run_id},
        )

    def _insert_step(self, step: StepRow) -> StepRow:
        self.execute(*_insertion("loop_steps", {"loop": self.loop_id, **_fields(step)}))
        self._steps[step.key] = step
        return step

    def _update_step(self, step: StepRow, **values: Any) -> StepRow:
        self._update("loop_steps", {"loop": self.loop_id, **step.key._asdict()}, values)
        changed = self._steps[step.key] = replace(step, **values)
        return changed

    def add_event(self, key: str, kind: str, *, story: str | None = None, **data: Any) -> None:
        """Record an event. An event with the same key is recorded only once."""
        if key in self._event_keys:
            return
        number = self._events[-1].number + 1 if self._events else 1
        event = EventRow(number, now_ms(), kind, story, json.loads(json.dumps(data)))
        self.execute(*_insertion("loop_events", {"loop": self.loop_id, "key": key, **_fields(event)}))
        self._events.append(event)
        self._event_keys.add(key)
        self._added.append(event)
        if not self._is_in_transaction:
            self._publish()


@contextmanager
def open_store(directory: LoopDirectory) -> Iterator[LoopStore]:
    """Open a loop's rows for changes, under the lock of the process that works on the loop.

    Raises:
        NotFound: There is no such loop.
        UsageError: Another process works on it.
        InfrastructureFault: Its database cannot be read.
    """
    with directory.held(), closing(LoopStore(directory.database, directory.id)) as store:
        yield store


def read_store(directory: LoopDirectory) -> LoopStore:
    """Read all rows of a loop as they are now.

    Raises:
        NotFound: There is no such loop.
        InfrastructureFault: Its database cannot be read.
    """
    return LoopStore(directory.database, directory.id, is_writable=False)


def read_overview(directory: LoopDirectory) -> tuple[LoopRow, list[StoryRow]]:
    """Read a loop and its stories, without their steps.

    Raises:
        NotFound, InfrastructureFault: As `read_store`.
    """
    with (
        _translated(directory.database),
        closing(_connect(directory.database, is_writable=False)) as connection,
    ):
        connection.execute("BEGIN")
        return _read_loop(connection, directory.id), _read_stories(connection, directory.id)


def read_events(directory: LoopDirectory, after: int) -> list[EventRow]:
    """Read the events of a loop after an event's number.

    Raises:
        InfrastructureFault: As `read_store`.
    """
    with (
        _translated(directory.database),
        closing(_connect(directory.database, is_writable=False)) as connection,
    ):
        return [*map(_event, _select_events(connection, directory.id, after))]


def create_database(
    directory: LoopDirectory, row: LoopRow, stories: Sequence[StoryRow], steps: Sequence[StepRow] = ()
) -> None:
    """Create a loop's database atomically, with steps that were completed before the loop was created.

    Raises:
        InfrastructureFault: The database cannot be written.
    """
    draft = directory.database.with_suffix(".draft")
    with _translated(directory.database):
        draft.unlink(missing_ok=True)
        keep_database_private(draft)
        with closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_TABLES)
            connection.execute(*_insertion("loops", _fields(row)))
            for story in stories:
                connection.execute(*_insertion("loop_stories", _fields(story)))
            for step in steps:
                connection.execute(*_insertion("loop_steps", {"loop": row.id, **_fields(step)}))
        draft.replace(directory.database)


def now_ms() -> int:
    """Return the wall clock time, in milliseconds since the epoch."""
    return int(time.time() * 1000)


def _connect(file: Path, *, is_writable: bool) -> sqlite3.Connection:
    if is_writable:
        keep_database_private(file)
    mode = "rw" if is_writable else "ro"
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_S, isolation_level=None
    )
    connection.row_factory = sqlite3.Row
    if is_writable:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise InfrastructureFault(
            f"the loop's database {str(file)!r} cannot be used: {exc}; check that it is intact and may be written, "
            "then try again"
        ) from exc


def _read_loop(connection: sqlite3.Connection, loop: str) -> LoopRow:
    row = connection.execute("SELECT * FROM loops WHERE id = ?", (loop,)).fetchone()
    if row is None:
        raise NotFound(f"there is no loop {loop!r}; `ringfence loop ls` shows them")
    return LoopRow(**{**_values_of("loops", LoopRow, row), "state": LoopState(row["state"])})


def _read_stories(connection: sqlite3.Connection, loop: str) -> list[StoryRow]:
    rows = connection.execute("SELECT * FROM loop_stories WHERE loop = ? ORDER BY position", (loop,))
    return [
        StoryRow(**{**_values_of("loop_stories", StoryRow, row), "state": StoryState(row["state"])})
        for row in rows
    ]


def _select_events(connection: sqlite3.Connection, loop: str, after: int) -> list[sqlite3.Row]:
    query = "SELECT * FROM loop_events WHERE loop = ? AND number > ? ORDER BY number"
    return connection.execute(query, (loop, after)).fetchall()


def _event(row: sqlite3.Row) -> EventRow:
    return EventRow(row["number"], row["at_ms"], row["type"], row["story"], json.loads(row["data"]))


def _step(row: sqlite3.Row) -> StepRow:
    return StepRow(**{**_values_of("loop_steps", StepRow, row), "result": json.loads(row["result"] or "{}")})


def _values_of(table: str, kind: type[LoopRow | StoryRow | StepRow], row: sqlite3.Row) -> dict[str, Any]:
    """Return the values of a row by the names of its fields."""
    columns = _COLUMNS[table]
    return {name: row[columns.get(name, name)] for name in kind.__dataclass_fields__}


def _fields(row: LoopRow | StoryRow | StepRow | EventRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__}


def _insertion(table: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    markers = ", ".join("?" * len(values))
    columns = ", ".join(_COLUMNS[table].get(name, name) for name in values)
    statement = f"INSERT INTO {table} ({columns}) VALUES ({markers})"  # noqa: S608 -- our own column names
    return statement, [*map(_column, values.values())]


def _column(value: Any) -> Any:
    """Return a value for SQLite: mappings become JSON, and lone surrogates, which an agent can write, are escaped."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
