"""Where holders are found: names, locks, what is left of the dead."""

import os
import threading
from pathlib import Path

import pytest

from ringfence.errors import RecordError, UsageError
from ringfence.sandbox import Facts, Placement, SandboxSpec
from ringfence.sandbox.base import Overlay
from ringfence.sandbox.supervisor.place import HolderPlace, claim, places_in, remove_halves, standing_place
from ringfence.sandbox.supervisor.state import HolderState, read_state, write_state


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", ".hidden", "-x", "a/b", "é", "x" * 64, "a\n"])
def test_what_is_no_name_is_refused(name: str):
    """Names become directories and are typed by people."""
    with pytest.raises(UsageError, match="cannot be the name"):
        standing_place(name)


def test_a_lock_is_gone_with_its_holder(tmp_path: Path):
    """Alive is who holds it."""
    place = HolderPlace(tmp_path / "one")
    lock = claim(place)
    before = place.is_alive()
    os.close(lock)
    assert (before, place.is_alive()) == (True, False)


def test_a_place_of_the_dead_is_taken_over_clean(tmp_path: Path):
    """Nothing of what was in it is left."""
    place = HolderPlace(tmp_path / "one")
    os.close(claim(place))
    (place.directory / "old").touch()
    lock = claim(place)
    assert not (place.directory / "old").exists()
    os.close(lock)


def test_of_many_who_claim_one_gets_it(tmp_path: Path):
    """At the same time, a hundred times over."""
    place = HolderPlace(tmp_path / "one")
    locks: list[int] = []

    def try_it() -> None:
        try:
            locks.append(claim(place))
        except UsageError:
            return

    threads = [threading.Thread(target=try_it) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(locks) == 1
    os.close(locks[0])


def test_removing_twice_is_harmless(tmp_path: Path):
    """Somebody else may have been quicker."""
    place = HolderPlace(tmp_path / "one")
    os.close(claim(place))
    place.remove()
    place.remove()
    assert places_in(tmp_path) == []


def test_halves_of_old_removals_go(tmp_path: Path):
    """Those of a moment ago are somebody's work."""
    for name, age_s in ((".gone-old", 10_000), (".gone-new", 0)):
        path = tmp_path / name
        path.mkdir()
        moment = path.stat().st_mtime - age_s
        os.utime(path, (moment, moment))
    remove_halves(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".gone-new"]


@pytest.fixture
def state() -> HolderState:
    """A state with everything in it."""
    odd = Path(os.fsdecode(b"/w/\xff"))
    return HolderState(
        sandbox_id="abc",
        kind="standing",
        pid=1,
        spec=SandboxSpec(workspace=odd, memory="1g", env={"A": "1"}),
        placement=Placement(1, 2, odd, odd, overlays=(Overlay(odd / "a", odd / "b", read_only=True),)),
        facts=Facts(
            backend="bubblewrap", enforced={"memory": "kernel"}, notes=("one",), watched_paths=("/w",)
        ),
        chosen_because="named",
        created_at="2026-01-01T00:00:00+00:00",
        born_s=1.5,
        policy={"network": "none"},
    )


def test_a_state_is_read_as_it_was_written(tmp_path: Path, state: HolderState):
    """Names that are no UTF-8 included, and which limits were asked for."""
    place = HolderPlace(tmp_path)
    write_state(place, state)
    again = read_state(place)
    assert again == state
    assert again is not None
    assert again.spec.asked_limits() == frozenset({"memory"})


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', "\0"])
def test_a_damaged_state_is_told_as_such(tmp_path: Path, text: str):
    """And never taken for another."""
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(RecordError, match="damaged"):
        read_state(HolderPlace(tmp_path))
