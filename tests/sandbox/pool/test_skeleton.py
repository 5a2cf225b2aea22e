"""Skeletons and shapes, without a sandbox."""

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.sandbox import Facts, Placement, SandboxSpec
from ringfence.sandbox.base import BindMount
from ringfence.sandbox.pool.counts import Counts, count, read_counts
from ringfence.sandbox.pool.pool import take_ready
from ringfence.sandbox.pool.skeleton import Shape, fits, hand_over, make_skeleton, move_placement, shape_of
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState
from ringfence.sandbox.workspace.protect.mounts import COVER

INSIDE = Path("/project")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """What `prepare` leaves for a run on a clone."""
    run = tmp_path / "run"
    (run / "git" / "refs").mkdir(parents=True)
    (run / "git" / "base-objects-0").mkdir()
    (run / "git" / "HEAD").write_text("ref: x\n")
    (run / "work" / ".git").mkdir(parents=True)
    (run / "work" / "d" / "e").mkdir(parents=True)
    (run / "work" / "d" / "e" / "f").write_text("f")
    (run / "work" / ".envrc").write_text("guarded")
    (run / "work" / ".envrc").chmod(0o640)
    (tmp_path / "objects").mkdir()
    return run


@pytest.fixture
def placement(run_dir: Path) -> Placement:
    """Its mounts."""
    return Placement(
        os.getuid(),
        os.getgid(),
        INSIDE,
        run_dir / "work",
        mounts=(
            BindMount(run_dir / "git", INSIDE / ".git", read_only=False),
            BindMount(run_dir.parent / "objects", INSIDE / ".git" / "base-objects-0", read_only=True),
            BindMount(run_dir / "work" / ".envrc", INSIDE / ".envrc", read_only=True),
        ),
    )


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """An empty directory of the pool's."""
    made = tmp_path / "slot"
    made.mkdir()
    return made


def test_a_skeleton_has_every_mount_and_nothing_else(placement: Placement, run_dir: Path, slot: Path):
    """A skeleton has each source and mount point of the run, empty, with the same owner and mode."""
    target = make_skeleton(placement, run_dir, slot)
    assert target == move_placement(placement, run_dir, slot)
    assert sorted(str(path.relative_to(slot)) for path in slot.rglob("*")) == [
        "git",
        "git/base-objects-0",
        "work",
        "work/.envrc",
        "work/.git",
    ]
    assert (slot / "work" / ".envrc").stat().st_mode & 0o777 == 0o640


def put_link(path: Path, target: Path) -> None:
    """What a hostile image does to its skeleton once it was looked at."""
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("name", ["work/.envrc", "work/.git", "git/base-objects-0", "work/d"])
def test_nothing_is_handed_over_through_a_link(
    placement: Placement, run_dir: Path, slot: Path, tmp_path: Path, name: str
):
    """A link that a hostile image puts into the skeleton is not followed when the run's files are moved in."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("theirs")
    make_skeleton(placement, run_dir, slot)
    assert fits(slot, run_dir)
    put_link(slot / name, elsewhere / "file" if name == "work/.envrc" else elsewhere)
    with pytest.raises(InfrastructureFault, match="hand over"):
        hand_over(slot, run_dir)
    assert list(elsewhere.iterdir()) == [elsewhere / "file"]
    assert (elsewhere / "file").read_text() == "theirs"


@pytest.mark.parametrize("name", ["work/.envrc", "work/.git", "git/base-objects-0"])
def test_a_link_made_after_the_look_is_not_followed(
    placement: Placement,
    run_dir: Path,
    slot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
):
    """A link that is put there between the check and the move is not followed, either."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("theirs")
    make_skeleton(placement, run_dir, slot)
    look = os.stat

    def look_and_lose(path: Any, **options: Any) -> os.stat_result:
        found = look(path, **options)
        if path == Path(name).name:
            put_link(slot / name, elsewhere / "file" if name == "work/.envrc" else elsewhere)
        return found

    monkeypatch.setattr(os, "stat", look_and_lose)
    with pytest.raises(InfrastructureFault, match="hand over"):
        hand_over(slot, run_dir)
    assert list(elsewhere.iterdir()) == [elsewhere / "file"]
    assert (elsewhere / "file").read_text() == "theirs"


def test_a_sandbox_is_taken_once(tmp_path: Path):
    """Of several that try, one succeeds."""
    directory = SandboxDirectory(tmp_path / "one")
    lock = directory.claim()
    state = SupervisorState("abc", 1, SandboxSpec(), Facts(), "", "", 0.0, directory_inside="/w")
    directory.write_state(state)
    assert [take_ready(directory) for _ in range(3)] == [state, None, None]
    os.close(lock)


def test_what_is_mounted_stays_the_same_file(placement: Placement, run_dir: Path, slot: Path):
    """The run's contents are moved into the files that are mounted, which then lie at the run's own paths."""
    make_skeleton(placement, run_dir, slot)
    mounted = [path.stat().st_ino for path in (slot / "work", slot / "work" / ".envrc", slot / "git")]
    assert fits(slot, run_dir)
    hand_over(slot, run_dir)
    now = [path.stat().st_ino for path in (run_dir / "work", run_dir / "work" / ".envrc", run_dir / "git")]
    assert now == mounted
    assert (run_dir / "work" / ".envrc").read_text() == "guarded"
    assert (run_dir / "work" / "d" / "e" / "f").read_text() == "f"
    assert (run_dir / "git" / "HEAD").read_text() == "ref: x\n"
    assert not (slot / "work").exists()


@pytest.mark.parametrize("change", ["gone", "link", "kind"])
def test_a_skeleton_without_its_like_does_not_fit(
    placement: Placement, run_dir: Path, slot: Path, change: str
):
    """If a file of the skeleton has no counterpart in the run, that is noticed before anything is moved."""
    make_skeleton(placement, run_dir, slot)
    guarded = run_dir / "work" / ".envrc"
    guarded.unlink()
    if change == "link":
        guarded.symlink_to("/etc/passwd")
    elif change == "kind":
        guarded.mkdir()
    assert not fits(slot, run_dir)


@pytest.mark.parametrize("name", ["PATH", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST"])
def test_shapes_differ_by_where_engines_are_found(
    placement: Placement, run_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """A variable that selects the engine is part of the shape: a sandbox of one engine is not used for another."""
    spec = SandboxSpec(workspace=INSIDE)
    before = shape_of(spec, placement, run_dir).key
    monkeypatch.setenv(name, "/elsewhere")
    assert shape_of(spec, placement, run_dir).key != before


def test_shapes_differ_by_all_that_a_sandbox_shows(placement: Placement, run_dir: Path, tmp_path: Path):
    """Everything that a sandbox shows is part of the shape; what is applied when a run takes it is not."""
    spec = SandboxSpec(workspace=INSIDE)

    def key(spec: SandboxSpec = spec, placement: Placement = placement) -> str:
        return shape_of(spec, placement, run_dir).key

    (tmp_path / "more").mkdir()
    different = {
        key(),
        key(SandboxSpec(workspace=INSIDE, memory=2**31)),
        key(spec.model_copy(update={"hide_toolchains": True})),
        key(placement=replace(placement, uid=1)),
        key(placement=replace(placement, workspace_read_only=True)),
        key(placement=replace(placement, mounts=placement.mounts[:2])),
        key(placement=replace(placement, workspace_source=tmp_path / "more")),
    }
    assert len(different) == 7
    assert key(spec.model_copy(update={"setup": ("x",), "env": {"A": "1"}, "ttl_s": 5.0})) == key()


def test_the_identity_of_a_file_is_part_of_the_shape(placement: Placement, run_dir: Path, tmp_path: Path):
    """A mounted file that was replaced changes the layout: the mount shows the old one. A run's own files do not."""
    spec = SandboxSpec(workspace=INSIDE)
    before = shape_of(spec, placement, run_dir)
    (run_dir / "git").rename(run_dir / "gone")
    (run_dir / "git").mkdir()
    assert shape_of(spec, placement, run_dir) == before
    (tmp_path / "objects").rename(tmp_path / "older")
    (tmp_path / "objects").mkdir()
    after = shape_of(spec, placement, run_dir)
    assert (after.request, after.layout == before.layout) == (before.request, False)


def test_the_meaning_of_an_image_is_part_of_the_shape(placement: Placement, run_dir: Path):
    """A name that means another image since is the same request, and another layout."""
    spec = SandboxSpec(workspace=INSIDE, image="a:1")
    old, new = (shape_of(spec, placement, run_dir, image_id=one) for one in ("sha256:1", "sha256:2"))
    assert (old.request == new.request, old.layout == new.layout) == (True, False)


def test_a_covered_socket_that_was_made_anew(run_dir: Path, tmp_path: Path):
    """A covered socket that was replaced changes the layout, since the cover lies on the old one."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    spec = SandboxSpec(workspace=workspace)
    placement = Placement(
        1500, 1500, workspace, workspace, mounts=(BindMount(COVER, workspace / "s", read_only=True),)
    )

    def bound() -> Shape:
        (workspace / "s").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(workspace / "s"))
        return shape_of(spec, placement, run_dir)

    first = bound()
    assert shape_of(spec, placement, run_dir) == first
    assert bound().layout != first.layout


def test_counts_add_up_and_survive_damage(tmp_path: Path):
    """A damaged file counts from nothing; it is no reason to fail."""
    for what in ("hits", "hits", "misses", "failed"):
        count(tmp_path, what, "why" if what == "failed" else "")
    assert read_counts(tmp_path) == Counts(hits=2, misses=1, failed=1, last_failure="why")
    (tmp_path / "counts").write_text("[]")
    assert read_counts(tmp_path) == Counts()
