"""Verification: nothing done to a sealed journal goes unseen."""

import json
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError
from ringfence.events import MessageSent
from ringfence.journal import Journal, new_run_id, run_dir, verify_run
from ringfence.journal.seal import key_id, keys_dir, read_public_key, trusted_keys

from .conftest import MakeRun, conversation

Lines = list[bytes]


def _edit(lines: Lines) -> None:
    lines[3] = lines[3].replace(b"ls", b"rm")


def _drop(lines: Lines) -> None:
    del lines[2]


def _swap(lines: Lines) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _insert(lines: Lines) -> None:
    lines.insert(3, lines[2])


def _blank(lines: Lines) -> None:
    lines.insert(3, b"\n")


def _behead(lines: Lines) -> None:
    del lines[0]


def _append(lines: Lines) -> None:
    lines.append(lines[-1])


def _append_torn(lines: Lines) -> None:
    lines.append(b'{"seq"')


def _edit_last(lines: Lines) -> None:
    lines[-3] = lines[-3].replace(b"succeeded", b"failed")


def _edit_seal_time(lines: Lines) -> None:
    seal = json.loads(lines[-1])
    seal["time"] = "2001-01-01T00:00:00.000000Z"
    lines[-1] = json.dumps(seal, separators=(",", ":")).encode() + b"\n"


def _respell_seal(lines: Lines) -> None:
    lines[-1] = lines[-1].replace(b'"seq"', b'"\\u0073eq"')


def _rewrite(lines: Lines) -> None:
    """A sound chain over another content, with the seal of the first."""
    _edit(lines)
    for number in range(4, len(lines)):
        line = json.loads(lines[number])
        line["prev"] = sha256(lines[number - 1]).hexdigest()
        lines[number] = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize(
    ("change", "bad_line", "reason"),
    [
        (_edit, 5, "edited"),
        (_drop, 3, "dropped"),
        (_swap, 3, "reordered"),
        (_insert, 4, "inserted"),
        (_blank, 4, "not a line of a journal"),
        (_behead, 1, "dropped"),
        (_append, 9, "after the seal"),
        (_append_torn, 9, "after the seal"),
        (_edit_last, 7, "edited"),
        (_edit_seal_time, 8, "signature is wrong"),
        (_respell_seal, 8, "edited"),
        (_rewrite, 8, "another head"),
    ],
)
def test_damage_is_found_at_its_line(
    change: Callable[[Lines], None], bad_line: int, reason: str, make_run: MakeRun
) -> None:
    """Each kind of damage is named, with the first line that shows it."""
    directory = make_run()
    lines = (directory / "journal.jsonl").read_bytes().splitlines(keepends=True)
    change(lines)
    (directory / "journal.jsonl").write_bytes(b"".join(lines))
    found = verify_run(directory)
    assert (found.status, found.bad_line) == ("broken", bad_line)
    assert reason in (found.reason or "")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, frozenset[str]]:
    """A path for a changed journal, the bytes of a sealed one, and the key it was sealed with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGFENCE_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        run_id = new_run_id()
        with Journal.create(run_dir(run_id), run_id) as journal:
            for event in conversation():
                journal.append(event)
            journal.seal()
        content = (run_dir(run_id) / "journal.jsonl").read_bytes()
        return tmp_path_factory.mktemp("copy") / "journal.jsonl", content, trusted_keys()


@st.composite
def _mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """One change of bytes or of lines, anywhere."""
    kind = draw(st.sampled_from(["flip", "delete", "insert", "truncate", "drop", "swap", "repeat"]))
    place = draw(st.floats(0, 1, exclude_max=True))
    other = draw(st.floats(0, 1, exclude_max=True))
    byte = draw(st.integers(1, 255))

    def of_bytes(content: bytes) -> bytes:
        at = int(place * len(content))
        if kind == "flip":
            return content[:at] + bytes([content[at] ^ byte]) + content[at + 1 :]
        if kind == "delete":
            return content[:at] + content[at + 1 + byte % 5 :]
        if kind == "insert":
            return content[:at] + bytes([byte]) + content[at:]
        return content[:at]

    def of_lines(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        here, there = int(place * len(lines)), int(other * len(lines))
        if kind == "drop":
            del lines[here]
        elif kind == "swap":
            lines[here], lines[there] = lines[there], lines[here]
        else:
            lines.insert(there, lines[here])
        return b"".join(lines)

    return of_lines if kind in ("drop", "swap", "repeat") else of_bytes


@settings(max_examples=examples(400), deadline=None)
@given(mutate=_mutations())
def test_any_single_mutation_is_found(
    mutate: Callable[[bytes], bytes], sealed: tuple[Path, bytes, frozenset[str]]
) -> None:
    """No byte or line flipped, dropped, swapped, repeated, inserted or cut off leaves a sealed journal."""
    path, content, keys = sealed
    changed = mutate(content)
    path.write_bytes(changed)
    assert verify_run(path, public_keys=keys).ok == (changed == content)


@settings(max_examples=examples(200), deadline=None)
@given(
    content=st.binary(max_size=300) | st.text(alphabet='{}[]",:\n0$blobsqevnt', max_size=300).map(str.encode)
)
def test_garbage_is_never_an_exception(content: bytes, sealed: tuple[Path, bytes, frozenset[str]]) -> None:
    """A hostile file gets a verdict, not a traceback."""
    path, _, keys = sealed
    path.write_bytes(content)
    assert verify_run(path, public_keys=keys).status in ("open", "broken")


def test_a_run_that_was_never_sealed_is_open_ended(make_run: MakeRun) -> None:
    """A journal without a seal is in order, but nothing vouches for its end."""
    found = verify_run(make_run(seal=False))
    assert (found.status, found.events, found.ok, found.reason) == ("open", 6, False, None)


@pytest.mark.parametrize("kept", [1, 3, 7], ids=["one line", "half", "all but the seal"])
def test_cutting_whole_lines_off_is_found_by_the_index(kept: int, make_run: MakeRun) -> None:
    """A sealed journal cut down to look open-ended is called truncated."""
    directory = make_run()
    lines = (directory / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
    found = verify_run(directory)
    assert (found.status, found.reason) == ("truncated", f"{8 - kept} lines at the end were cut off")


@pytest.mark.parametrize("left", [b"", b"{", None], ids=["emptied", "a byte", "first line torn"])
def test_a_journal_without_a_line_is_found_by_the_index(left: bytes | None, make_run: MakeRun) -> None:
    """A journal of which no whole line is left is called truncated, too, also where it was never sealed."""
    directory = make_run(seal=False)
    journal = directory / "journal.jsonl"
    first = journal.read_bytes().splitlines()[0]
    journal.write_bytes(first[:-1] if left is None else left)
    found = verify_run(directory)
    assert (found.status, found.reason) == ("truncated", "6 lines at the end were cut off")


def test_a_removed_journal_is_found_by_the_index(make_run: MakeRun) -> None:
    """The directory of a run without a journal is called truncated, not passed over."""
    directory = make_run()
    (directory / "journal.jsonl").unlink()
    assert verify_run(directory).status == "truncated"


def test_a_rewritten_journal_is_found_by_the_index(make_run: MakeRun) -> None:
    """An open journal that was written anew, with a right chain, is not the one that the index knows."""
    directory = make_run(seal=False)
    heads = state_dir() / "heads"
    index = heads.read_bytes()
    (directory / "journal.jsonl").unlink()
    with Journal.create(directory, directory.name) as journal:
        for event in conversation():
            journal.append(event)
    heads.write_bytes(index)
    assert "the chain records another line" in (verify_run(directory).reason or "")


def test_a_seal_of_an_unknown_key_is_refused(make_run: MakeRun) -> None:
    """A seal counts only if its key is among the trusted ones."""
    directory = make_run()
    found = verify_run(directory, public_keys=["00" * 32])
    assert (found.status, found.reason) == ("broken", "the seal was made with a key that is not trusted here")


def test_a_rotated_key_stays_known_by_its_public_half(make_run: MakeRun) -> None:
    """When a new key takes over, seals of the old one verify as long as its public key is kept."""
    directory = make_run()
    (keys_dir() / "journal-ed25519").unlink()
    (keys_dir() / "journal-ed25519.pub").rename(keys_dir() / "old.pub")
    assert verify_run(make_run()).ok
    found = verify_run(directory)
    assert found.ok
    assert found.signer == key_id(read_public_key(keys_dir() / "old.pub"))


def test_another_runs_journal_is_refused(make_run: MakeRun) -> None:
    """A whole sealed journal does not pass for that of another run."""
    mine, other = make_run(), make_run()
    (mine / "journal.jsonl").write_bytes((other / "journal.jsonl").read_bytes())
    assert "another run" in (verify_run(mine).reason or "")


@pytest.mark.parametrize("damage", ["edited", "absent", "longer"])
def test_bodies_beside_the_journal_are_verified_too(damage: str, make_run: MakeRun) -> None:
    """A large body that was changed or removed breaks the journal at the line that refers to it."""
    directory = make_run(events=[MessageSent(content="x" * 100_000)])
    (body,) = (directory / "blobs").iterdir()
    if damage == "absent":
        body.unlink()
    else:
        body.write_bytes(b"y" * (100_000 + (damage == "longer")))
    found = verify_run(directory)
    assert (found.status, found.bad_line) == ("broken", 2)


def test_an_endless_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """A line of 64 MiB costs no more memory than the longest that is allowed."""
    path = tmp_path / "journal.jsonl"
    with path.open("wb") as file:
        file.truncate(64 * 1024**2)
    tracemalloc.start()
    found = verify_run(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "longer than" in (found.reason or "")
    assert peak < 8 * 1024**2


def test_memory_does_not_grow_with_the_journal(make_run: MakeRun) -> None:
    """Verification of megabytes stays within a small buffer."""
    directory = make_run(events=[MessageSent(content="x" * 1000)] * 3000)
    verify_run(directory)
    tracemalloc.start()
    found = verify_run(directory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.ok
    assert peak < 512 * 1024


def test_no_journal_is_an_error(tmp_path: Path) -> None:
    """Verifying nothing says so."""
    with pytest.raises(RecordError, match="cannot be read"):
        verify_run(tmp_path)
