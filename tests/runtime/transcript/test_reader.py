"""A file is read on from where it was."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ringfence.runtime.transcript.reader import TranscriptReader, read_items
from ringfence.runtime.transcript.record import Damage, Record


def _values(items: Any) -> list[Any]:
    return [item.value for item in items or [] if isinstance(item, Record)]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    """A record is given once, when it is whole; the offset stays before it until then."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":')
    with TranscriptReader(path) as reader:
        assert _values(reader.take()) == [{"a": 1}]
        assert reader.offset == 8
        with path.open("ab") as file:
            file.write(b"2}\n")
        assert _values(reader.take()) == [{"a": 2}]
        assert reader.take() is None


def test_a_file_is_taken_as_if_it_ended_earlier(tmp_path: Path) -> None:
    """Nothing behind the bound is read, and half a line before it is told."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    record, torn = read_items(path, until_bytes=12)
    assert isinstance(record, Record)
    assert isinstance(torn, Damage)
    assert "has no end" in torn.reason


def test_a_replaced_file_is_read_anew_and_that_is_told(tmp_path: Path) -> None:
    """Nothing of either file is lost; the reader says that it began again."""
    path, new = tmp_path / "s.jsonl", tmp_path / "new"
    path.write_bytes(b'{"a":1}\n')
    with TranscriptReader(path) as reader:
        assert _values(reader.take()) == [{"a": 1}]
        new.write_bytes(b'{"a":2}\n')
        new.replace(path)
        told = reader.reopen_if_changed()
        assert told is not None
        assert "replaced" in told.reason
        assert _values(reader.take()) == [{"a": 2}]


def test_a_removed_file_is_told_once(tmp_path: Path) -> None:
    """Another may come in its place, so the reader waits."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n')
    with TranscriptReader(path) as reader:
        reader.take()
        path.unlink()
        told = reader.reopen_if_changed()
        assert told is not None
        assert "removed" in told.reason
        assert reader.reopen_if_changed() is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=50,
    deadline=None,
)
@given(sizes=st.lists(st.integers(1, 40), max_size=20), texts=st.lists(st.text(max_size=10), max_size=8))
def test_however_much_is_read_at_a_time_the_records_are_the_same(
    sizes: list[int], texts: list[str], tmp_path: Path
) -> None:
    """Reads of any sizes give the records that one read gives."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(json.dumps({"t": text}).encode() + b"\n" for text in texts))
    found = []
    with TranscriptReader(path) as reader:
        for size in sizes:
            found += reader.take(limit_bytes=size) or []
        while (items := reader.take()) is not None:
            found += items
    assert found == list(read_items(path))


class _Followed(RuleBasedStateMachine):
    """A file that others add to, replace and cut off, and its reader."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="ringfence-follow-")
        self.path = Path(self.directory.name, "s.jsonl")
        self.path.write_bytes(b"")
        self.reader = TranscriptReader(self.path)
        self.seen: list[Any] = []
        self.count = 0

    def line(self) -> bytes:
        self.count += 1
        return json.dumps({"n": self.count}).encode() + b"\n"

    @rule(cut=st.integers(0, 20))
    def append(self, cut: int) -> None:
        torn = self.path.read_bytes()[-1:] not in (b"", b"\n")
        with self.path.open("ab") as file:
            file.write((b"\n" if torn else b"") + (self.line() + self.line())[: cut or None])

    @rule()
    def replace(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(self.line())
        new.replace(self.path)

    @rule()
    def truncate(self) -> None:
        self.path.write_bytes(b"")

    @invariant()
    def all_is_read(self) -> None:
        if self.reader.reopen_if_changed() is not None:
            self.seen = []
        while (items := self.reader.take()) is not None:
            self.seen += _values(items)
        whole = self.path.read_bytes().split(b"\n")[:-1]
        assert self.seen == [json.loads(line) for line in whole if _is_json(line)]

    def teardown(self) -> None:
        self.reader.close()
        self.directory.cleanup()


def test_a_file_under_any_changes_is_followed_without_loss() -> None:
    """Whole records of the file that is there now have all been given, whatever was done to it before."""
    run_state_machine_as_test(
        _Followed,
        settings=settings(
            max_examples=20,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
