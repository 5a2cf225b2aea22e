"""The chain of a state directory shows which records are missing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.config.paths import state_dir
from ringfence.journal import record_removals, run_dir, verify_all
from ringfence.journal.chain import record_head
from ringfence.journal.seal import trusted_keys

from .conftest import MakeRun

Lines = list[bytes]


def _chain() -> Path:
    return state_dir() / "heads"


def _change(change: Callable[[Lines], object]) -> None:
    lines = _chain().read_bytes().splitlines(keepends=True)
    change(lines)
    _chain().write_bytes(b"".join(lines))


def _faults() -> list[str]:
    return [one.kind for one in verify_all().findings if one.is_fault]


def _old_entry(run: Path) -> None:
    """Write the last entry of the chain as version 0.1 would have."""
    import msgspec

    from ringfence.journal.chain import Entry
    from ringfence.journal.seal import signing_key

    def change(lines: Lines) -> None:
        entry = msgspec.json.decode(lines[-1], type=Entry)
        old = Entry(entry.run_id, entry.seq, entry.head, entry.public_key, "")
        lines[-1] = (
            msgspec.json.encode(msgspec.structs.replace(old, signature=signing_key().sign(old.message())))
            + b"\n"
        )

    _change(change)


def test_all_records_in_their_place_give_no_findings(make_run: MakeRun) -> None:
    """Sealed and open-ended records that the chain knows are all there."""
    runs = [make_run(), make_run(seal=False), make_run()]
    state = verify_all()
    assert (state.ok, state.findings, state.entries, len(state.runs)) == (True, (), 3, 3)
    assert sorted(str(run.run_id) for run in state.runs) == sorted(run.name for run in runs)


@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "open"])
def test_a_removed_record_is_missing(seal: bool, make_run: MakeRun) -> None:
    """A directory that somebody removed by hand is named, whether its record was sealed or not."""
    run, _ = make_run(seal=seal), make_run()
    shutil.rmtree(run)
    state = verify_all()
    assert [(one.kind, one.path, one.is_fault) for one in state.findings] == [("missing", run, True)]
    assert not state.ok


def test_a_record_that_a_command_removed_is_not_missing(make_run: MakeRun) -> None:
    """Its removal is in the chain, with the command."""
    run, _ = make_run(), make_run()
    record_removals([run.name], by="gc")
    shutil.rmtree(run)
    state = verify_all()
    assert (state.findings, state.removed) == ((), {run.name: "gc"})


def test_a_removal_is_entered_once_and_only_for_known_records(make_run: MakeRun) -> None:
    """Removals that were interrupted are repeated, and records of other machines are not in this chain."""
    run = make_run()
    record_removals([run.name], by="gc")
    record_removals([run.name, "2026-01-01T00-00-00-00000000"], by="gc")
    assert verify_all().entries == 2


def _edit(lines: Lines) -> None:
    lines[1] = lines[1].replace(b'"seq":7', b'"seq":6')


def _drop(lines: Lines) -> None:
    del lines[1]


def _swap(lines: Lines) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def _repeat(lines: Lines) -> None:
    lines.insert(2, lines[1])


def _garble(lines: Lines) -> None:
    lines[1] = b"x" * (len(lines[1]) - 1) + b"\n"


@pytest.mark.parametrize("change", [_edit, _drop, _swap, _repeat, _garble])
def test_a_changed_chain_is_found(change: Callable[[Lines], None], make_run: MakeRun) -> None:
    """Entries cannot be edited, dropped, reordered, repeated or garbled; so no record can be removed with its entry."""
    runs = [make_run() for _ in range(4)]
    _change(change)
    shutil.rmtree(runs[1])
    assert "broken" in _faults()


def test_a_forged_removal_is_found(make_run: MakeRun) -> None:
    """An entry without the signature of a trusted key removes nothing."""
    run, _ = make_run(), make_run()
    record_removals([run.name], by="gc")
    _change(lambda lines: lines.append(lines.pop().replace(b'"removed_by":"gc"', b'"removed_by":"rm"')))
    shutil.rmtree(run)
    assert sorted(_faults()) == ["broken", "missing"]


def test_entries_of_an_old_version_are_covered_by_the_next(make_run: MakeRun) -> None:
    """Entries of 0.1 are not chained; once another entry follows, they cannot be dropped unnoticed."""
    runs = []
    for _ in range(2):
        runs.append(make_run())
        _old_entry(runs[-1])
    make_run()
    assert verify_all().findings == ()
    _change(lambda lines: lines.pop(0))
    shutil.rmtree(runs[0])
    assert _faults() == ["broken"]


def test_a_torn_entry_is_named_and_hides_nothing(make_run: MakeRun) -> None:
    """Half an entry that a crash left is no fault, and the entries around it count."""
    first = make_run()
    with _chain().open("ab") as file:
        file.write(b'{"run_id":"a","seq":2,')
    second = make_run()
    assert [one.kind for one in verify_all().findings] == ["unreadable"]
    shutil.rmtree(first)
    shutil.rmtree(second)
    assert _faults() == ["missing", "missing"]


def test_a_cut_chain_does_not_list_a_record_that_is_there(make_run: MakeRun) -> None:
    """A sealed record without an entry shows that entries were cut off."""
    make_run()
    make_run()
    _change(lambda lines: lines.pop())
    assert _faults() == ["unlisted"]


def test_an_anchor_shows_that_the_chain_was_cut(make_run: MakeRun) -> None:
    """A head that was kept elsewhere is found in the chain as long as nothing up to it was removed."""
    make_run()
    anchor = verify_all().head
    run = make_run()
    later = verify_all().head
    assert verify_all(anchor=anchor).ok
    assert verify_all(anchor=later).ok
    _change(lambda lines: lines.pop())
    shutil.rmtree(run)
    assert verify_all(anchor=anchor).ok
    assert not verify_all(anchor=later).ok


def test_a_damaged_record_says_nothing_of_the_others(make_run: MakeRun) -> None:
    """What cannot be read of one is that one's status."""
    make_run()
    (run_dir(make_run().name) / "journal.jsonl").unlink()
    _change(lambda lines: lines.pop())
    assert sorted(run.status for run in verify_all().runs) == ["broken", "sealed"]


def test_a_long_chain_is_continued_where_it_ends(make_run: MakeRun) -> None:
    """The last entry is found from the end of the file, behind garbage that is longer than what is looked through."""
    make_run()
    with _chain().open("ab") as file:
        file.write(b"x" * 200_000 + b"\n")
    make_run()
    assert _faults() == []


@settings(max_examples=examples(100), deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255))
def test_any_flipped_byte_before_the_last_entry_is_found(
    at: float, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every byte of the chain up to its last entry counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGFENCE_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        for number in range(3):
            record_head(f"2026-01-01T00-00-00-0000000{number}", seq=1, head="x")
        for number in range(3):
            run_dir(f"2026-01-01T00-00-00-0000000{number}").mkdir(parents=True)
        keys = trusted_keys()
        content = _chain().read_bytes()
        place = int(at * content.rindex(b"\n", 0, -1))
        _chain().write_bytes(content[:place] + bytes([content[place] ^ byte]) + content[place + 1 :])
        assert [one for one in verify_all(public_keys=keys).findings if one.is_fault]
