"""A view is the directory until something is done in it, and that stays out of the directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.cases import examples
from tests.sandbox.workspace.trees import TREES, State, become, contents

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.job.store import JobStore
from ringfence.job.sweep import sweep as sweep_the_dead
from ringfence.sandbox.workspace.layers import Layer, sweep, why_no_layers


@pytest.fixture
def place(ground: Path) -> Path:
    """Where views are kept; skips where this machine has none."""
    place = ground / "layers"
    if why := why_no_layers(place):
        pytest.skip(why)
    return place


@pytest.fixture
def lower(ground: Path) -> Path:
    """A directory with files in it."""
    lower = ground / "lower"
    (lower / "sub" / "deep").mkdir(parents=True)
    for name in ("a", "b", "sub/c", "sub/deep/d"):
        (lower / name).write_text(f"{name}\n")
    return lower


def test_changes_stay_out_of_the_directory(lower: Path, place: Path):
    """Only the view has what was written; the directory is as it was."""
    before = contents(lower)
    with Layer(lower, place) as layer:
        (layer.merged / "a").write_text("other\n")
        (layer.merged / "b").unlink()
        assert layer.changes().files == {b"a": "modified", b"b": "deleted"}
    assert contents(lower) == before


def test_rolling_back_shows_the_directory_again(lower: Path, place: Path):
    """After it the view differs in nothing, and can be worked in."""
    with Layer(lower, place) as layer:
        (layer.merged / "new").write_text("")
        layer.roll_back()
        assert (contents(layer.merged), layer.changes().files) == (contents(lower), {})
        (layer.merged / "again").write_text("")
        assert layer.changes().files == {b"again": "added"}
        layer.tidy()
        assert layer.changes().files == {b"again": "added"}


def test_a_directory_made_anew_hides_the_old_one(lower: Path, place: Path):
    """What was in a directory that was removed is gone, also where one of its name is there again."""
    with Layer(lower, place) as layer:
        subprocess.run(["rm", "-r", "sub"], cwd=layer.merged, check=True)
        (layer.merged / "sub").mkdir()
        (layer.merged / "sub" / "c").write_text("sub/c\n")
        assert layer.changes().files == {b"sub/deep/d": "deleted"}


def test_a_renamed_directory_is_told_file_by_file(lower: Path, place: Path):
    """A rename is what is gone here and new there."""
    with Layer(lower, place) as layer:
        subprocess.run(["mv", "sub", "moved"], cwd=layer.merged, check=True)
        assert layer.changes().files == {
            b"sub/c": "deleted",
            b"sub/deep/d": "deleted",
            b"moved/c": "added",
            b"moved/deep/d": "added",
        }


def test_touching_is_no_change(lower: Path, place: Path):
    """A file that was copied up and holds what it held is not told."""
    with Layer(lower, place) as layer:
        os.utime(layer.merged / "a")
        (layer.merged / "b").write_text("b\n")
        assert layer.changes().files == {}


@pytest.mark.slow
def test_what_nests_too_deep_is_named(lower: Path, place: Path):
    """A flood of directories is not followed without end; where the look ended is told."""
    with Layer(lower, place) as layer:
        script = "for _ in $(seq 300); do mkdir d; cd d || exit; done"
        subprocess.run(["sh", "-c", script], cwd=layer.merged, check=True)
        assert list(layer.changes().unseen) == [b"/".join([b"d"] * 257)]


def test_names_are_no_options(ground: Path, place: Path):
    """A directory whose name means something to mount is a directory."""
    lower = ground / "a,upperdir=b:c\\d"
    lower.mkdir()
    (lower / "file").write_text("x")
    with Layer(lower, place) as layer:
        assert (layer.merged / "file").read_text() == "x"


def test_a_link_is_refused(lower: Path, place: Path, ground: Path):
    """What a link leads to was not meant."""
    (ground / "link").symlink_to(lower)
    with pytest.raises(InfrastructureFault):
        Layer(ground / "link", place)
    assert not list(place.glob("*/merged"))


def test_one_within_the_other_is_refused(lower: Path, place: Path):
    """Changes that were kept in the directory would change the directory."""
    with pytest.raises(UsageError):
        Layer(lower, lower / "changes")


def test_what_a_killed_process_left_is_swept(lower: Path, place: Path):
    """Its views are unmounted and removed; those of the living stay."""
    program = (
        "import os, sys; from pathlib import Path; from ringfence.sandbox.workspace.layers import Layer;"
        "Layer(Path(sys.argv[1]), Path(sys.argv[2])); os.kill(os.getpid(), 9)"
    )
    with Layer(lower, place) as layer:
        subprocess.run([sys.executable, "-c", program, lower, place], check=False)
        assert len(list(place.glob("*/merged"))) == 2
        assert sweep(place) == 1
        assert list(place.glob("*/merged")) == [layer.merged]
        assert contents(layer.merged) == contents(lower)


@pytest.mark.anyio
async def test_each_run_and_gc_begin_with_a_sweep(
    lower: Path, place: Path, ground: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a killed process left where views are kept by default is removed with the remains of dead runs."""
    state = ground / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(state))
    program = (
        "import os, sys; from pathlib import Path; from ringfence.sandbox import Layer;"
        "Layer(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, lower], check=False)  # noqa: ASYNC221 - nothing else waits
    assert len(list((state / "views").glob("*/merged"))) == 1
    await sweep_the_dead(JobStore())
    assert not list((state / "views").iterdir())


def test_nothing_is_left(lower: Path, place: Path):
    """At the end there is neither a mount nor a file."""
    with Layer(lower, place) as layer:
        (layer.merged / "new").write_text("")
        layer.roll_back()
    assert not list(place.glob("*/merged"))
    assert str(place) not in Path("/proc/self/mountinfo").read_text().replace(str(place / "probes"), "")


@pytest.mark.slow
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(before=TREES, after=TREES)
def test_the_list_of_changes_is_complete(before: State, after: State, ground: Path, place: Path):
    """Whatever is done in a view, its list says what a comparison of all files says."""
    lower = ground / "any"
    lower.mkdir(exist_ok=True)
    become(lower, before)
    with Layer(lower, place) as layer:
        become(layer.merged, after)
        old, new = contents(lower), contents(layer.merged)
        wanted = {
            os.fsencode(path): "added" if path not in old else "deleted" if path not in new else "modified"
            for path in old.keys() | new.keys()
            if old.get(path) != new.get(path)
        }
        assert layer.changes().files == wanted
        layer.roll_back()
        assert contents(layer.merged) == old
