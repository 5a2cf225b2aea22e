"""Control of workflows by a client of DBOS, which launches nothing. All calls block."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, EnqueueOptions, Serializer
from dbos import WorkflowStatus as DbosStatus
from dbos import error as dbos_error

from ringfence.engine.base import Json, WorkflowState, WorkflowStatus
from ringfence.engine.liveness import Database, Liveness, RecoveryCounter

QUEUE = "ringfence"
"""The one queue of a database, and the name of our application for DBOS. Admission is decided before."""
WORKFLOW = "ringfence"
"""The one workflow that DBOS knows; which of ours it is, is an argument."""
VERSION = "1"
"""Of our application, for DBOS: never changed, or it would strand what was begun before."""
POLL_S = 0.15
LOWEST = 1000
_STATES = {
    "DELAYED": WorkflowState.WAITING,
    "ENQUEUED": WorkflowState.WAITING,
    "PENDING": WorkflowState.RUNNING,
    "SUCCESS": WorkflowState.DONE,
    "ERROR": WorkflowState.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": WorkflowState.FAILED,
    "CANCELLED": WorkflowState.CANCELLED,
}


class WorkflowFailed(Exception):
    """What a workflow raised, as it was kept."""


class JsonSerializer(Serializer):
    """JSON for values, and the text of errors: the default of DBOS would run code out of the database."""

    def serialize(self, data: Any) -> str:
        """As JSON."""
        if isinstance(data, BaseException):
            return json.dumps({"error": f"{type(data).__name__}: {data}"})
        return json.dumps({"value": data})

    def deserialize(self, serialized_data: str) -> Any:
        """From JSON."""
        kept = json.loads(serialized_data)
        return WorkflowFailed(kept["error"]) if "error" in kept else kept["value"]

    def name(self) -> str:
        """As it is noted beside each value."""
        return "ringfence_json"


class Control:
    """A client of DBOS on a database.

    Args:
        database: Which.
        liveness: For the turn in which workflows are removed.
        recoveries: Goes with the workflows.
    """

    def __init__(self, database: Database, liveness: Liveness, recoveries: RecoveryCounter) -> None:
        DBOS.migrate(database.url.render_as_string(hide_password=False))
        self._liveness = liveness
        self._recoveries = recoveries
        self.client = DBOSClient(
            system_database_url=database.url.render_as_string(hide_password=False),
            serializer=JsonSerializer(),
            application_name=QUEUE,
            retry_connection_errors=False,
        )

    def make_queue(self, *, concurrency: int) -> None:
        """Have the queue, before an executor is launched: DBOS looks for new ones but once a second."""
        self.client.register_queue(QUEUE, worker_concurrency=concurrency, polling_interval_sec=POLL_S)

    def enqueue(self, workflow: str, id: str, argument: Json, priority: int) -> bool:
        """As `Engine.enqueue`."""
        options = _options(id, priority)
        options["workflow_id_reuse_policy"] = "reject"
        try:
            self.client.enqueue(options, workflow, argument)
        except dbos_error.DBOSWorkflowIDInUseError:
            return False
        return True

    def enqueue_in(
        self, connection: sa.Connection, workflow: str, id: str, argument: Json, priority: int
    ) -> None:
        """As `Engine.enqueue_in`."""
        self.client.enqueue_in_transaction(connection, _options(id, priority), workflow, argument)

    def forget(self, ids: Sequence[str]) -> list[str]:
        """As `Engine.forget`; which were removed. In turn with take-overs, one of which would bring it back."""
        with self._liveness.turn():
            known = self.find(ids=ids, limit=max(1, len(ids)))
            ended = [one.id for one in known if one.state.is_end]
            # First: who dies in between is asked again for workflows that are there, and so for their counts.
            self._recoveries.forget(ended)
            if ended:
                self.client.delete_workflows(ended)
        return ended

    def find(
        self,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[WorkflowState] | None = None,
        limit: int,
    ) -> list[WorkflowStatus]:
        """As `Engine.list`."""
        if (ids is not None and not ids) or (states is not None and not states):
            return []
        wanted = None if states is None else [name for name, state in _STATES.items() if state in states]
        found = self.client.list_workflows(
            workflow_ids=None if ids is None else [*ids],
            status=wanted,
            name=WORKFLOW,
            limit=limit,
            sort_desc=True,
            load_input=False,
        )
        return [status_of(each) for each in found]

    def pending(self, *, executor: str | None = None) -> list[DbosStatus]:
        """What some executor has, as DBOS knows it."""
        return self._bare(None, status="PENDING", executor_id=executor)

    def running(self, ids: Sequence[str]) -> dict[str, str | None]:
        """Who has which of these; a workflow that is with nobody is not among them."""
        return {one.workflow_id: one.executor_id for one in self._bare(ids, status="PENDING")}

    def _bare(self, ids: Sequence[str] | None, **filters: Any) -> list[DbosStatus]:
        if ids is not None:
            filters["workflow_ids"] = [*ids]
        return self.client.list_workflows(name=WORKFLOW, load_input=False, load_output=False, **filters)

    def put_back(self, id: str) -> None:
        """Have some executor go on with a workflow."""
        self.client.resume_workflow(id, queue_name=QUEUE)

    def close(self) -> None:
        """Close its connections."""
        self.client.destroy()


def _options(id: str, priority: int) -> EnqueueOptions:
    return {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "workflow_id": id,
        "app_version": VERSION,
        "priority": 1 + LOWEST - priority,
    }


def status_of(found: DbosStatus) -> WorkflowStatus:
    """A workflow as we show it."""
    return WorkflowStatus(
        id=found.workflow_id,
        state=_STATES[found.status],
        executor=found.executor_id,
        result=found.output,
        error=None if found.error is None else str(found.error),
    )
