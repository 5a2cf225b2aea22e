"""The list of runs."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError, UsageError
from ringfence.events import JobCreated, JobEnded, MessageSent
from ringfence.journal import (
    Journal,
    list_runs,
    mark_interrupted,
    new_run_id,
    read,
    resolve,
    run_dir,
    runs_dir,
    summarize,
    verify_run,
)

from .conftest import MakeRun, conversation


def _named(make_run: MakeRun, run_id: str) -> Path:
    path = make_run(seal=False)
    shutil.move(path, runs_dir() / run_id)
    return runs_dir() / run_id


def test_a_summary_says_what_a_list_needs(make_run: MakeRun) -> None:
    """State, seal, first line of the prompt, labels, model and duration, from both ends of the journal."""
    summary = summarize(make_run())
    assert (summary.state, summary.is_sealed, summary.prompt) == ("succeeded", True, "fix the test")
    assert summary.labels == {"team": "core"}
    assert (summary.model, summary.duration_s, summary.reason) == ("model-1", 2.0, "the check passed")


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("\n\nfix the test\nand the other", "fix the test"),
        ("role: judge\nstory: S1\nattempt: 1 of 3\n\nYou are", "role: judge, story: S1, attempt: 1 of 3"),
        ("", ""),
    ],
)
def test_of_a_task_with_a_head_all_of_the_head_is_shown(make_run: MakeRun, prompt: str, shown: str) -> None:
    """So that a list tells turns of a loop apart; of others, the first line."""
    created = msgspec.structs.replace(
        next(each for each in conversation() if isinstance(each, JobCreated)), prompt=prompt
    )
    assert summarize(make_run(events=[created], seal=False)).prompt == shown


def test_a_long_end_is_found(make_run: MakeRun) -> None:
    """The end of a run is found though its lines are long."""
    ended = JobEnded(state="failed", exit_code=1, reason="r" * 60_000)
    assert summarize(make_run(events=[MessageSent(content="x" * 60_000), ended])).state == "failed"


def test_states_without_an_end(make_run: MakeRun) -> None:
    """A run without an end is running while its process lives, then interrupted; a damaged one is damaged."""
    directory = make_run(seal=False, events=conversation()[:2])
    assert summarize(directory).state == "interrupted"
    with Journal.reopen(directory):
        assert summarize(directory).state == "running"
    (directory / "journal.jsonl").write_bytes(b"garbage\n")
    assert summarize(directory).state == "damaged"


def test_runs_are_listed_newest_first(make_run: MakeRun) -> None:
    """The list is by time, and as long as was asked for."""
    ids = [f"2026-01-2{day}T10-30-45-0123abc{day}" for day in range(3)]
    for run_id in ids:
        _named(make_run, run_id)
    (runs_dir() / "stray").mkdir()
    assert [run.id for run in list_runs()] == ids[::-1]
    assert [run.id for run in list_runs(1)] == [ids[2]]


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
    st.timedeltas(timedelta(microseconds=245), timedelta(seconds=2)),
)
def test_later_names_sort_after_earlier_ones(moment: datetime, later: timedelta) -> None:
    """The newest run is the last by name, also of many in one second."""
    assert new_run_id(moment) < new_run_id(moment + later)


@pytest.mark.parametrize(
    "reference",
    ["2026-01-28T10-30-45-0123abcd", "2026-01-28", "012"],
    ids=["id", "prefix", "digits"],
)
def test_a_run_is_found_by_what_is_unique(reference: str, make_run: MakeRun) -> None:
    """A whole id, and the beginning of it or of its digits, name a run."""
    _named(make_run, "2026-01-27T10-30-45-ffffabcd")
    wanted = _named(make_run, "2026-01-28T10-30-45-0123abcd")
    assert resolve(reference) == wanted


@pytest.mark.parametrize("reference", ["", "..", "2027", "/etc", "journal.jsonl"])
def test_what_names_no_run_is_refused(reference: str, make_run: MakeRun) -> None:
    """Nothing but a run is found, and the error says where to look."""
    make_run()
    with pytest.raises(UsageError, match="runs ls"):
        resolve(reference)


def test_what_names_several_runs_is_refused(make_run: MakeRun) -> None:
    """An ambiguous beginning is refused with the runs that fit."""
    make_run()
    make_run()
    with pytest.raises(UsageError, match="fits 2 runs"):
        resolve("20")


def test_only_run_ids_name_directories() -> None:
    """A run's directory cannot be made to lie elsewhere."""
    with pytest.raises(UsageError, match="is not a run id"):
        run_dir("../../etc")


def test_an_interrupted_run_gets_its_end(make_run: MakeRun) -> None:
    """A run whose process was killed is repaired, ended, sealed and given its session file; once."""
    directory = make_run(seal=False, events=conversation()[:3])
    (state_dir() / "heads").unlink()  # a writer that was killed left no entry
    path = directory / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert mark_interrupted(directory)
    assert verify_run(directory).ok
    names = [record.event.name for record in read(directory)][-4:]
    assert names == ["journal.repaired", "job.ended", "files.recorded", "journal.sealed"]
    assert summarize(directory).state == "interrupted"
    assert (directory / f"{directory.name}.json").is_file()
    assert not mark_interrupted(directory)


def test_a_run_has_one_end(make_run: MakeRun) -> None:
    """A run that was killed between its end and its seal is sealed with the end it has."""
    directory = make_run(seal=False)
    assert mark_interrupted(directory)
    ends = [record.event for record in read(directory) if isinstance(record.event, JobEnded)]
    assert [end.state for end in ends] == ["succeeded"]
    assert verify_run(directory).ok


def test_a_damaged_record_is_not_sealed_over(make_run: MakeRun) -> None:
    """Marking refuses a journal that was changed."""
    directory = make_run(seal=False, events=conversation()[:3])
    path = directory / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'fix the test"', b'fox the test"'))
    with pytest.raises(RecordError, match="broken at line"):
        mark_interrupted(directory)
