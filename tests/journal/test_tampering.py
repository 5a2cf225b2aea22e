"""Nothing in the directory of a sealed record is changed, removed or added unnoticed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.errors import InfrastructureFault, RecordError
from ringfence.events import FilesRecorded, MessageSent
from ringfence.journal import (
    Journal,
    Verification,
    export,
    new_run_id,
    read,
    run_dir,
    verify_run,
    write_session,
)
from ringfence.journal.seal import trusted_keys

from .conftest import conversation

_FILES = {
    "work.json": b'{"after":"0123"}',
    "work.patch": b"--- a\n+++ b\n",
    "commits-1.bundle": b"# v2 git bundle\n",
    "error.txt": b"Traceback\n",
}


def _record() -> Path:
    """A sealed record with a file of each kind and two bodies."""
    run_id = new_run_id()
    directory = run_dir(run_id)
    with Journal.create(directory, run_id) as journal:
        for event in [*conversation(), MessageSent(content="x" * 70_000), MessageSent(content="y" * 70_000)]:
            journal.append(event)
        for name, content in _FILES.items():
            (directory / name).write_bytes(content)
        (directory / "work").mkdir()
        session = export(directory).encode()
        journal.seal(session=session)
    write_session(directory, session)
    return directory


@pytest.fixture
def record() -> Path:
    """A sealed record with a file of each kind."""
    return _record()


def _name(directory: Path, name: str) -> Path:
    if name == "body":
        return min((directory / "blobs").iterdir())
    return directory / (f"{directory.name}.json" if name == "session" else name)


def _edit(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _replace_by_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def _faults(found: Verification) -> set[tuple[str, str]]:
    return {(one.kind, one.path.name) for one in found.findings if one.is_fault}


def test_a_record_as_it_was_sealed_has_no_findings(record: Path) -> None:
    """All files are covered; the directories that the run worked in are no part of the record."""
    found = verify_run(record)
    assert (found.status, found.findings) == ("sealed", ())


@pytest.mark.parametrize("change", [_edit, _empty, _replace_by_link])
@pytest.mark.parametrize("name", [*_FILES, "session"])
def test_a_changed_file_is_named(name: str, change: Callable[[Path], None], record: Path) -> None:
    """An edited file, an emptied one and a link in a file's place break the record."""
    path = _name(record, name)
    change(path)
    found = verify_run(record)
    assert found.status == "broken"
    assert ("changed", path.name) in _faults(found)


@pytest.mark.parametrize("name", _FILES)
def test_a_missing_file_is_named(name: str, record: Path) -> None:
    """A removed file breaks the record."""
    (record / name).unlink()
    found = verify_run(record)
    assert (found.status, _faults(found)) == ("broken", {("missing", name)})


def test_a_missing_session_is_named(record: Path) -> None:
    """The session file can be written again from the journal: its absence is named, and breaks nothing."""
    _name(record, "session").unlink()
    found = verify_run(record)
    assert (found.status, [one.kind for one in found.findings]) == ("sealed", ["missing"])


@pytest.mark.parametrize("name", ["body", "journal.jsonl"])
@pytest.mark.parametrize("change", [_edit, _empty, Path.unlink])
def test_a_changed_body_or_journal_is_found(name: str, change: Callable[[Path], None], record: Path) -> None:
    """The journal and the bodies beside it cannot be edited, emptied or removed."""
    change(_name(record, name))
    assert verify_run(record).status in ("broken", "truncated")


@pytest.mark.parametrize(
    "name",
    ["notes.txt", ".hidden", "commits-2.bundle", "reserve", "blobs/" + "0" * 64, "blobs/x", "more/", "fifo|"],
)
def test_an_added_file_is_named(name: str, record: Path) -> None:
    """A file, body, directory or pipe that the journal does not list breaks the record."""
    path = record / name.rstrip("/|")
    if name.endswith("/"):
        path.mkdir()
    elif name.endswith("|"):
        os.mkfifo(path)
    else:
        path.write_bytes(b"x")
    found = verify_run(record)
    assert (found.status, _faults(found)) == ("broken", {("unknown", path.name)})


def test_the_lock_holds_nothing(record: Path) -> None:
    """The file of the lock is empty: nothing can be hidden in it."""
    (record / "lock").write_bytes(b"x")
    assert _faults(verify_run(record)) == {("unknown", "lock")}


def test_a_link_in_the_place_of_a_directory_is_named(record: Path) -> None:
    """The directories that a run worked in are passed over, a link with their name is not."""
    (record / "work").rmdir()
    (record / "work").symlink_to("/")
    assert _faults(verify_run(record)) == {("unknown", "work")}


@pytest.mark.parametrize("name", ["undone", "stories.json"])
def test_a_file_written_by_a_later_command_is_named_as_not_covered(name: str, record: Path) -> None:
    """The mark of an undo and a drafted plan come after the seal."""
    (record / name).touch()
    found = verify_run(record)
    assert (found.status, [one.kind for one in found.findings]) == ("sealed", ["uncovered"])


def test_a_journal_that_lists_files_elsewhere_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of files leads out of the record's directory."""
    directory = run_dir(new_run_id())
    monkeypatch.setattr("ringfence.journal.writer.digests", lambda _: {"../secret": "0" * 64})
    with Journal.create(directory, directory.name) as journal:
        journal.seal()
    found = verify_run(directory)
    assert (found.status, "../secret" in (found.reason or "")) == ("broken", True)


def test_files_of_an_old_record_are_named_as_not_covered(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 0.1 has no digest of its patch: it stays sealed, and the file is named."""
    directory = run_dir(new_run_id())
    monkeypatch.setattr(
        "ringfence.journal.writer.FilesRecorded", lambda **_: FilesRecorded(files={}, is_complete=False)
    )
    with Journal.create(directory, directory.name) as journal:
        journal.seal()
    (directory / "work.patch").write_bytes(b"x")
    found = verify_run(directory)
    assert (found.status, [one.kind for one in found.findings]) == ("sealed", ["uncovered"])
    assert "not covered by the seal" in found.findings[0].message


def test_a_body_whose_line_could_not_be_written_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no body that no line refers to, so that the record can be sealed and verified."""
    run_id = new_run_id()
    with Journal.create(run_dir(run_id), run_id) as journal:
        journal.append(MessageSent(content="z" * 70_000))
        with monkeypatch.context() as full:
            full.setattr("ringfence.journal.writer.LineFile.append", _full)
            with pytest.raises(InfrastructureFault, match="No space"):
                journal.append(MessageSent(content="w" * 70_000))
        journal.seal()
    assert verify_run(run_dir(run_id)).findings == ()


def _full(_file: object, _line: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_a_body_that_a_killed_process_left_is_removed_when_the_record_is_closed() -> None:
    """Its line was never written, and no other refers to it."""
    run_id = new_run_id()
    with Journal.create(run_dir(run_id), run_id) as journal:
        journal.append(MessageSent(content="z" * 70_000))
    (run_dir(run_id) / "blobs" / ("0" * 64)).write_bytes(b"x")
    (run_dir(run_id) / "blobs" / ".0123456789abcdef.new").write_bytes(b"x")
    with Journal.reopen(run_dir(run_id)) as journal:
        journal.seal()
    assert verify_run(run_dir(run_id)).findings == ()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, frozenset[str]]:
    """A sealed record, outside of a state directory, and the key that it was sealed with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGFENCE_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        directory = _record()
        _name(directory, "session").unlink()
        copy = tmp_path_factory.mktemp("copy") / directory.name
        shutil.copytree(directory, copy)
        return copy, trusted_keys()


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_any_change_of_any_file_is_found(data: st.DataObject, original: tuple[Path, frozenset[str]]) -> None:
    """No file of a record can be edited, cut, removed, renamed, added or exchanged for another."""
    source, keys = original
    directory = source.with_name("changed")
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source, directory)
    (directory / f"{source.name}.json").unlink(missing_ok=True)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files).filter(lambda each: each.name != "lock"))
    content = path.read_bytes()
    match data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "rename", "exchange", "add"])):
        case "flip":
            at = data.draw(st.integers(0, len(content) - 1))
            path.write_bytes(
                content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
            )
        case "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        case "grow":
            path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=9)))
        case "remove":
            path.unlink()
        case "rename":
            path.rename(path.with_name("other"))
        case "exchange":
            other = data.draw(st.sampled_from(files).filter(lambda each: each.read_bytes() != content))
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)
        case "add":
            (path.parent / "other").write_bytes(data.draw(st.binary(max_size=9)))
    if (directory / "journal.jsonl").exists():
        assert not verify_run(directory, public_keys=keys).ok
    else:
        with pytest.raises(RecordError):
            verify_run(directory, public_keys=keys)


@pytest.mark.parametrize("replace", ["fifo", "link", "directory"])
def test_what_is_no_journal_is_an_error(record: Path, tmp_path: Path, replace: str) -> None:
    """A pipe or a link in the place of a journal is a damaged record; nothing waits for its writer."""
    journal = record / "journal.jsonl"
    moved = tmp_path / "moved"
    journal.rename(moved)
    if replace == "fifo":
        os.mkfifo(journal)
    elif replace == "link":
        journal.symlink_to(moved)
    else:
        journal.mkdir()
    with pytest.raises(RecordError):
        verify_run(record)
    with pytest.raises(RecordError):
        list(read(record))
