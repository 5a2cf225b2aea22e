"""Which engine a database gets."""

from collections.abc import Mapping

from ringfence.engine.base import Engine, Workflow


def open_engine(
    url: str,
    *,
    workflows: Mapping[str, Workflow] | None = None,
    concurrency: int = 8,
    recoveries: int = 5,
) -> Engine:
    """An engine on a database, to be entered as an async context.

    Args:
        url: `sqlite:///FILE`, or `postgresql://user@host/database`.
        workflows: What it runs, by name; None for control only, which launches nothing.
        concurrency: How many an executor runs at once. One number for all executors of a database: that of the one that
            started last.
        recoveries: How often a workflow is taken over from an executor that died, before it is given up.

    Raises:
        UsageError: This process has an executor already.
        InfrastructureFault: On entering: the database cannot be reached, or lies where it cannot be locked.
    """
    from ringfence.engine.dbos import DbosEngine

    return DbosEngine(url, workflows=workflows, concurrency=concurrency, recoveries=recoveries)
