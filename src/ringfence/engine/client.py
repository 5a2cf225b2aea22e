"""Controls the workflows of a database, from any process."""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, EnqueueOptions, Serializer
from dbos import WorkflowStatus as DbosStatus
from dbos import error as dbos_error

from ringfence.engine.base import HIGHEST_PRIORITY, Json, WorkflowState, WorkflowStatus, as_json
from ringfence.engine.liveness import Database, open_liveness
from ringfence.errors import UsageError

Result = TypeVar("Result")
QUEUE = "ringfence"
"""The queue of workflows that any executor may run, and the name of the application in DBOS. Admission is up to the
caller."""
WORKFLOW = "ringfence"
"""The one workflow that DBOS knows. Its first argument is the name of the workflow to run."""
VERSION = "1"
"""The version of the application in DBOS. It never changes: DBOS does not run workflows of other versions."""
_STATES = {
    "DELAYED": WorkflowState.WAITING,
    "ENQUEUED": WorkflowState.WAITING,
    "PENDING": WorkflowState.RUNNING,
    "SUCCESS": WorkflowState.DONE,
    "ERROR": WorkflowState.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": WorkflowState.FAILED,
    "CANCELLED": WorkflowState.FAILED,
}
_ENDED = tuple(state for state in WorkflowState if state.is_end)


def queue_of(label: str) -> str:
    """The queue of workflows that only executors with a label run; without a label, the queue of all executors."""
    return f"{QUEUE}:{label}" if label else QUEUE


class JsonSerializer(Serializer):
    """Stores values as JSON and exceptions as text, unlike the default serializer of DBOS, which uses pickle."""

    def serialize(self, data: Any) -> str:
        """Serialize a value or an exception."""
        if isinstance(data, BaseException):
            return json.dumps({"error": f"{type(data).__name__}: {data}"})
        return json.dumps({"value": data})

    def deserialize(self, serialized_data: str) -> Any:
        """Deserialize a value; an exception becomes a plain `Exception` with its text."""
        stored = json.loads(serialized_data)
        return Exception(stored["error"]) if "error" in stored else stored["value"]

    def name(self) -> str:
        """The name of this serializer, which DBOS stores with each value."""
        return "ringfence_json"


class Engine:
    """The workflows of a database. See `ringfence.engine.open_engine`.

    Raises:
        InfrastructureFault: By every method: the database cannot be reached.
        UsageError: By methods that take JSON: the argument is not JSON.
    """

    def __init__(self, url: str, *, executor: str | None = None) -> None:
        _silence_loggers()
        self.executor = executor
        """The name of this executor, never used again; None if this engine is not an executor."""
        self._database = Database(url)
        self._liveness = open_liveness(self._database, executor)
        self._dbos: DBOSClient | None = None
        self._threads = anyio.CapacityLimiter(8)

    async def __aenter__(self) -> Self:
        try:
            await self._call(self._open)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        await self._close()

    def _open(self) -> None:
        self._database.create_tables()
        url = self._database.url.render_as_string(hide_password=False)
        DBOS.migrate(url)
        self._dbos = DBOSClient(
            system_database_url=url,
            serializer=JsonSerializer(),
            application_name=QUEUE,
            retry_connection_errors=False,
        )

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._dbos is not None:
                await anyio.to_thread.run_sync(self._dbos.destroy)
            await anyio.to_thread.run_sync(self._liveness.unregister)
            await anyio.to_thread.run_sync(self._database.close)

    async def _call(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call a blocking function in a thread, and translate errors of the database."""
        with self._database.translated_errors():
            return await anyio.to_thread.run_sync(
                partial(function, *arguments, **options), limiter=self._threads
            )

    @property
    def _client(self) -> DBOSClient:
        if self._dbos is None:
            raise UsageError("the engine is not open: use `async with`")
        return self._dbos

    async def enqueue(self, workflow: str, *, id: str, argument: Json = None, priority: int = 0) -> bool:
        """Enqueue a workflow; False if a workflow with this id exists, which stays unchanged.

        Args:
            workflow: The name of the workflow.
            id: The id of the workflow.
            argument: The argument, as JSON.
            priority: 0 to 1000; higher priorities are claimed first.
        """
        options = _options(id, priority)
        options["workflow_id_reuse_policy"] = "reject"
        argument = as_json(argument, what="the argument of a workflow")

        def enqueue() -> bool:
            try:
                self._client.enqueue(options, workflow, argument)
            except dbos_error.DBOSWorkflowIDInUseError:
                return False
            self._liveness.wake()
            return True

        return await self._call(enqueue)

    def enqueue_in(
        self,
        connection: sa.Connection,
        workflow: str,
        *,
        id: str,
        argument: Json = None,
        priority: int = 0,
        label: str = "",
    ) -> None:
        """Enqueue a workflow within the caller's transaction: it exists once that commits. This method blocks.

        Args:
            connection: The connection of the transaction, in the database of this engine.
            workflow: The name of the workflow.
            id: The id of the workflow. An existing workflow with this id stays unchanged.
            argument: The argument, as JSON.
            priority: 0 to 1000; higher priorities are claimed first.
            label: Only executors with this label run the workflow; empty: every executor does.
        """
        argument = as_json(argument, what="the argument of a workflow")
        options = _options(id, priority)
        options["queue_name"] = queue_of(label)
        self._client.enqueue_in_transaction(connection, options, workflow, argument)
        self._liveness.wake(connection)

    async def list(
        self,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[WorkflowState] | None = None,
        limit: int = 1000,
    ) -> list[WorkflowStatus]:
        """List workflows, newest first."""
        return [_status_of(each) for each in await self._call(self._find, ids, states, limit)]

    async def get(self, id: str) -> WorkflowStatus | None:
        """One workflow; None if there is none with this id."""
        found = await self.list(ids=[id])
        return found[0] if found else None

    async def remove(self, ids: Sequence[str]) -> int:
        """Remove workflows that have ended, with all their data, and return how many; others stay.

        The id of a removed workflow can be used again. Pass at most a few hundred ids at once.
        """

        def delete() -> int:
            ended = [each.workflow_id for each in self._find(ids, _ENDED, len(ids))]
            self._client.delete_workflows(ended)
            return len(ended)

        return await self._call(delete) if ids else 0

    def _find(
        self, ids: Sequence[str] | None, states: Sequence[WorkflowState] | None, limit: int
    ) -> Sequence[DbosStatus]:
        if (ids is not None and not ids) or (states is not None and not states):
            return []
        return self._client.list_workflows(
            workflow_ids=None if ids is None else [*ids],
            status=None if states is None else [name for name, state in _STATES.items() if state in states],
            name=WORKFLOW,
            limit=limit,
            sort_desc=True,
            load_input=False,
        )

    async def live_executors(self) -> Sequence[str]:
        """The names of all executors that hold their lock."""
        return await self._call(self._liveness.live_executors)

    async def stopped(self) -> str:
        """Wait until this executor has lost its right to run workflows, and return why. Not an executor: wait forever.

        Other executors have taken over its workflows, or will. Here they are interrupted as by a cancel scope: they can
        clean up, shielded, but none of their later results is stored. No workflow starts any more. Leave the context,
        and open another engine.
        """
        await anyio.sleep_forever()
        raise AssertionError


def _status_of(found: DbosStatus) -> WorkflowStatus:
    """Convert a status of DBOS to the one that `Engine.list` returns."""
    error = None if found.error is None else str(found.error)
    if found.status == "CANCELLED":
        error = (found.attributes or {}).get("error", "cancelled")
    return WorkflowStatus(
        id=found.workflow_id,
        state=_STATES[found.status],
        executor=found.executor_id,
        result=found.output,
        error=error,
    )


def _options(id: str, priority: int) -> EnqueueOptions:
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise UsageError(f"a priority is 0 to {HIGHEST_PRIORITY}, not {priority}")
    return {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "workflow_id": id,
        "app_version": VERSION,
        "priority": 1 + HIGHEST_PRIORITY - priority,
    }


def _silence_loggers() -> None:
    """Keep DBOS, which advertises a service, and SQLAlchemy from writing to the terminal."""
    for name in ("dbos", "sqlalchemy"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger("dbos").propagate = False
