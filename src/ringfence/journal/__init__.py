"""The record of a run: what happened, in order, chained by hash, sealed with a signature.

It is imported by what must start fast, so names are looked up on use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.journal.lock import is_alive
    from ringfence.journal.reading import follow, read
    from ringfence.journal.record import Record, UnknownEvent, as_json
    from ringfence.journal.runs import (
        RunSummary,
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
    from ringfence.journal.session import SessionDocument, export, write_session
    from ringfence.journal.verification import Verification, verify
    from ringfence.journal.writing import Journal

_HOMES = {
    "Journal": "writing",
    "Record": "record",
    "RunSummary": "runs",
    "SessionDocument": "session",
    "UnknownEvent": "record",
    "Verification": "verification",
    "as_json": "record",
    "export": "session",
    "fitting": "runs",
    "follow": "reading",
    "is_alive": "lock",
    "list_runs": "runs",
    "mark_interrupted": "runs",
    "new_run_id": "runs",
    "read": "reading",
    "resolve": "runs",
    "run_dir": "runs",
    "run_dirs": "runs",
    "runs_dir": "runs",
    "summarize": "runs",
    "verify": "verification",
    "write_session": "session",
}

__all__ = [
    "Journal",
    "Record",
    "RunSummary",
    "SessionDocument",
    "UnknownEvent",
    "Verification",
    "as_json",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
