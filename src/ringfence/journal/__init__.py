"""The record of a run: its events in order, chained by hashes and sealed with a signature."""

from ringfence.journal.chain import record_removals
from ringfence.journal.disk import is_alive
from ringfence.journal.layout import LOCK_NAME, new_run_id, run_dir, run_dirs, runs_dir
from ringfence.journal.reader import (
    RunSummary,
    creation_of,
    find_last_event,
    follow,
    has_opened_sandbox,
    list_runs,
    matching_runs,
    read,
    resolve,
    summarize,
)
from ringfence.journal.record import Record, UnknownEvent, as_json
from ringfence.journal.session import export, write_session
from ringfence.journal.state_verification import STATE_LIMITS, StateVerification, verify_all
from ringfence.journal.verification import (
    RECORD_LIMITS,
    Finding,
    Verification,
    describe_verification,
    verify_run,
)
from ringfence.journal.writer import Journal, mark_interrupted

__all__ = [
    "LOCK_NAME",
    "RECORD_LIMITS",
    "STATE_LIMITS",
    "Finding",
    "Journal",
    "Record",
    "RunSummary",
    "StateVerification",
    "UnknownEvent",
    "Verification",
    "as_json",
    "creation_of",
    "describe_verification",
    "export",
    "find_last_event",
    "follow",
    "has_opened_sandbox",
    "is_alive",
    "list_runs",
    "mark_interrupted",
    "matching_runs",
    "new_run_id",
    "read",
    "record_removals",
    "resolve",
    "run_dir",
    "run_dirs",
    "runs_dir",
    "summarize",
    "verify_all",
    "verify_run",
    "write_session",
]
