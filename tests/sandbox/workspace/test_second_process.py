"""Asking for the status of files by two processes at once."""

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_after

from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.known import Entry, KnownFiles
from ringfence.sandbox.workspace.snapshot.remembered import Remembered
from ringfence.sandbox.workspace.snapshot.scan import Scan, scan_known
from ringfence.sandbox.workspace.snapshot.second_process import Answers, second_process
from ringfence.sandbox.workspace.snapshot.statuses import count_as_known
from ringfence.sandbox.workspace.snapshot.survey import survey
from ringfence.sandbox.workspace.tree import Tree

_FOLDERS, _FILES = 100, 60
"""Enough of them for a second process to be of use."""


def known_files(root: Path) -> KnownFiles:
    """What is known of all files below a directory when each was just read."""
    found = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            status = path.lstat()
            name = os.fsencode(path.relative_to(root))
            found[name] = Entry(status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode, b"0" * 20)
    return KnownFiles({}).changed((), found)


def fill(root: Path) -> None:
    """Make 6,000 files."""
    for number in range(_FOLDERS):
        folder = root / f"d{number:02}"
        folder.mkdir()
        for name in range(_FILES):
            (folder / f"f{name:02}").write_bytes(b"1")


def seen(found: Scan) -> tuple[object, ...]:
    """What a scan found."""
    return found.lost, found.suspects, found.skipped, found.linked


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of 6,000 files."""
    root = tmp_path_factory.mktemp("many")
    fill(root)
    return root


@asynccontextmanager
async def answered(known: KnownFiles, root: Path) -> AsyncIterator[Answers]:
    """A second process that has looked at everything."""
    async with second_process(known, root, Actor.current()) as answers:
        with anyio.fail_after(30):
            while len(answers.told()) < len(known.in_order):
                assert answers.source is not None
                await anyio.wait_readable(answers.source)
        yield answers


@pytest.fixture
def told() -> Iterator[Callable[[bytes], Answers]]:
    """Makes what a second process answered."""
    opened = []

    def answer(data: bytes) -> Answers:
        source, sink = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(sink, data)
        os.close(sink)
        opened.append(source)
        return Answers(source)

    yield answer
    for source in opened:
        os.close(source)


def _same_size_and_times(file: Path) -> None:
    status = file.stat()
    file.write_bytes(b"2")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def _folder_as_link(file: Path) -> None:
    moved = file.parent.with_name(f"moved-{file.parent.name}")
    file.parent.rename(moved)
    file.parent.symlink_to(moved)


_CHANGES: tuple[Callable[[Path], object], ...] = (
    _same_size_and_times,
    Path.unlink,
    _fifo,
    _link,
    _folder_as_link,
    lambda file: file.chmod(0o755),
    lambda file: file.with_name("second").hardlink_to(file),
)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
async def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    """Whatever happened to a file, and whoever of the two looks at it, it is found."""
    fill(tmp_path)
    known, remembered = known_files(tmp_path), Remembered()
    later_ns = time.time_ns() + 10**10
    survey(tmp_path, remembered=remembered, began_ns=later_ns)
    folders = [folder for folder, _ in known.in_order]
    # The first ones, and the last ones.
    touched = [*zip(folders, _CHANGES, strict=False), *zip(reversed(folders), _CHANGES, strict=False)]
    for folder, change in touched:
        change(tmp_path / os.fsdecode(folder) / "f30")
    recalled = survey(tmp_path, remembered=remembered, began_ns=later_ns).recalled
    with Tree(tmp_path) as tree:
        alone = scan_known(tree, known)
        async with answered(known, tmp_path) as answers:
            both = scan_known(tree, known, recalled=recalled, answers=answers)
    assert {path.rpartition(b"/")[0] for path in (*alone.lost, *alone.linked)} == {f for f, _ in touched}
    assert seen(both) == seen(alone)
    assert len(recalled) > _FOLDERS - len(touched)


def test_what_is_answered_is_not_asked_again(many: Path, told: Callable[[bytes], Answers]) -> None:
    """Directories that the second process found as known are left alone, those before them are looked at."""
    known = known_files(many)
    everything = [folder for folder, _ in known.in_order]
    stale = known.changed((), {path: Entry(1, 1, 1, 0o100644, b"") for path in known})
    with Tree(many) as tree:
        found = scan_known(tree, stale, recalled=everything, answers=told(b"\1" * 40))
    assert {path.partition(b"/")[0] for path in found.lost} == set(everything[:60])


@pytest.mark.parametrize(
    "data",
    slow_after(1, [b"", b"\0" * 40, b"\0" * _FOLDERS, b"\0" * 10 * _FOLDERS]),
    ids=["none", "some", "all", "too-many"],
)
def test_what_is_not_as_known_is_looked_at(many: Path, told: Callable[[bytes], Answers], data: bytes) -> None:
    """However many directories the second process found changed, the first one sees each file of them."""
    known = known_files(many)
    stale = known.changed((), {path: Entry(1, 1, 1, 0o100644, b"") for path in known})
    recalled = {folder for folder, _ in known.in_order}
    with Tree(many) as tree:
        assert scan_known(tree, stale, recalled=recalled, answers=told(data)).lost == set(known)


def test_a_directory_that_was_not_recalled_is_looked_at(many: Path, told: Callable[[bytes], Answers]) -> None:
    """Of a directory that is not the one it was, the second process is not believed."""
    known = known_files(many)
    stale = known.changed((), {path: Entry(1, 1, 1, 0o100644, b"") for path in known})
    with Tree(many) as tree:
        assert scan_known(tree, stale, answers=told(b"\1" * _FOLDERS)).lost == set(known)


async def test_without_a_second_process_one_asks_for_all(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second process cannot start, nothing is missed."""
    known = known_files(many)
    stale = known.changed((), {path: Entry(1, 1, 1, 0o100644, b"") for path in known})
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with second_process(known, many, Actor.current()) as answers:
        with Tree(many) as tree:
            assert scan_known(tree, stale, answers=answers).lost == set(known)


_TAMPER = """
kill -0 "$1" 2>/dev/null && echo done || echo refused
(: > "/proc/$1/fd/1") 2>/dev/null && echo done || echo refused
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root looks on somebody's behalf")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
async def test_the_workspaces_owner_has_no_say_in_what_is_answered(tmp_path: Path) -> None:
    """The owner's other processes can neither stop the second process nor write in its name."""
    nobody = Entry(1, 1, 1, 0o100644, b"0" * 20)
    # More answers than a pipe takes: it does not end before it was looked at.
    known = KnownFiles({}).changed((), {b"%d/f" % number: nobody for number in range(70_000)})
    started = set(_children())
    async with second_process(known, tmp_path, Actor(65534, 65534)) as answers:
        assert answers.source is not None
        (pid,) = set(_children()) - started
        await anyio.wait_readable(answers.source)
        tampered = await anyio.run_process(["/bin/sh", "-c", _TAMPER, "sh", pid], user=65534, group=65534)
        looks_as = await anyio.Path(f"/proc/{pid}/status").read_text()
    assert "Uid:\t0\t65534\t0\t65534" in looks_as
    assert tampered.stdout.decode().split() == ["refused", "refused"]


def _children() -> list[str]:
    return [
        pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    ]


def test_files_are_as_known_up_to_the_first_that_is_not(tmp_path: Path) -> None:
    """Counted are the files before the first that changed."""
    for name in "abc":
        (tmp_path / name).write_bytes(b"1")
    ((folder, packed),) = known_files(tmp_path).in_order
    (tmp_path / "b").write_bytes(b"22")
    root = os.open(tmp_path, os.O_RDONLY)
    assert count_as_known(folder, packed.names, packed.status, root=root) == 1
    os.close(root)
