"""Take-over: what dead executors ran goes back to the queue."""

from collections.abc import Collection

import sqlalchemy as sa
from dbos import WorkflowStatus

from ringfence.engine.dbos.control import Control
from ringfence.engine.liveness import Liveness, Recoveries
from ringfence.errors import InfrastructureFault


class Recovery:
    """Of one executor. All calls block.

    Args:
        control: The workflows.
        liveness: Who lives.
        recoveries: Where take-overs are counted.
        executor: Who does it.
    """

    def __init__(self, control: Control, liveness: Liveness, recoveries: Recoveries, executor: str) -> None:
        self._control = control
        self._liveness = liveness
        self._recoveries = recoveries
        self._executor = executor
        self._idle: frozenset[str] = frozenset()

    def take_over(self, running: Collection[str]) -> None:
        """Put back what is with executors that nobody knows any longer, and what this one has but never began.

        The latter happens where the database was lost between the claim and the start: seen twice in a row, it is so.

        Args:
            running: What this executor runs.
        """
        pending = self._control.pending()
        known = self._liveness.known()  # later than the workflows: an executor is known before it takes any
        idle = {one.workflow_id for one in pending if one.executor_id == self._executor} - {*running}
        for one in pending:
            if one.executor_id not in known or one.workflow_id in idle & self._idle:
                self._put_back(one)
        self._idle = frozenset(idle)

    def _put_back(self, seen: WorkflowStatus) -> None:
        """In turn with all others, and after another look: what is put back would run again even if it was cancelled."""
        with self._liveness.turn():
            now = self._control.running([seen.workflow_id])
            if now.get(seen.workflow_id, self) == seen.executor_id:
                self._recoveries.count(seen.workflow_id)
                self._control.put_back(seen.workflow_id)

    def hand_over(self) -> None:
        """Put back what this executor has, because it leaves: that is nobody's death, and not counted."""
        try:
            with self._liveness.turn():
                for one in self._control.pending(executor=self._executor):
                    self._control.put_back(one.workflow_id)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, InfrastructureFault):
            return  # others take it over as soon as our lock is gone
