"""The record of a run: what happened, in order, chained by hash, sealed with a signature."""

from ringfence.journal.lock import is_alive
from ringfence.journal.reading import follow, read
from ringfence.journal.record import Record, UnknownEvent, as_json
from ringfence.journal.runs import (
    RunSummary,
    creation_of,
    fitting,
    list_runs,
    mark_interrupted,
    new_run_id,
    resolve,
    run_dir,
    run_dirs,
    runs_dir,
    summarize,
)
from ringfence.journal.session import export, write_session
from ringfence.journal.verification import Verification, verify
from ringfence.journal.writing import Journal

__all__ = [
    "Journal",
    "Record",
    "RunSummary",
    "UnknownEvent",
    "Verification",
    "as_json",
    "creation_of",
    "export",
    "fitting",
    "follow",
    "is_alive",
    "list_runs",
    "mark_interrupted",
    "new_run_id",
    "read",
    "resolve",
    "run_dir",
    "run_dirs",
    "runs_dir",
    "summarize",
    "verify",
    "write_session",
]
