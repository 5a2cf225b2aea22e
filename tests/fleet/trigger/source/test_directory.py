"""A directory of task files as a work source."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.trigger.source import Outcome, WorkItem, WorkSource
from ringfence.fleet.trigger.source.base import BODY_LIMIT_BYTES
from ringfence.fleet.trigger.source.directory import DirectorySource
from ringfence.testing.work_source import CHECKS, Check

TOKEN = "claim00000001"


class Tasks:
    """A directory with the operations of its owner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    async def put(self, title: str, body: str) -> str:
        self.count += 1
        file = self.root / f"{title.replace(' ', '-')}.md"
        file.write_text(body)
        os.utime(file, (self.count, self.count))
        return file.name

    async def words(self, item: WorkItem) -> list[str]:
        return [
            file.read_text()
            for file in self.root.rglob("*")
            if item.id in file.name and file.suffix in {".comment", ".result"}
        ]

    def open(self) -> WorkSource:
        return DirectorySource(self.root)


@pytest.fixture
def place(tmp_path: Path) -> Tasks:
    """An empty directory."""
    return Tasks(tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conforms(place: Tasks, check: Check):
    """A directory meets the contract of work sources."""
    await check(place)


async def test_what_is_no_task_is_told_and_never_read(place: Tasks, tmp_path_factory):
    """Links, pipes, directories, and files that are too large, empty or no text are reported with the reason."""
    secret = tmp_path_factory.mktemp("outside") / "secret.md"
    secret.write_text("secret")
    (place.root / "link.md").symlink_to(secret)
    os.mkfifo(place.root / "pipe.md")
    (place.root / "folder.md").mkdir()
    (place.root / "large.md").write_bytes(b"x" * (BODY_LIMIT_BYTES + 1))
    (place.root / "bytes.md").write_bytes(b"\xff")
    (place.root / "empty.md").write_text(" \n")
    (place.root / ".hidden.md").write_text("x")
    (place.root / "other.py").write_text("x")
    id = await place.put("good", "do")
    found = await place.open().fetch(1)
    assert [item.id for item in found.items] == [id]
    assert {one.id: one.reason for one in (await place.open().fetch(100)).unusable} == {
        "link.md": "it is a link",
        "pipe.md": "it is not a regular file",
        "folder.md": "it is not a regular file",
        "large.md": f"it has more than {BODY_LIMIT_BYTES} bytes",
        "bytes.md": "it is not UTF-8",
        "empty.md": "it is empty",
    }


async def test_a_name_that_is_no_text_holds_up_no_other(place: Tasks):
    """A file whose name is not UTF-8 is reported, as no database could store the name; others are not affected."""
    (place.root / os.fsdecode(b"\xff.md")).write_text("x")
    id = await place.put("good", "do")
    found = await place.open().fetch(100)
    assert [item.id for item in found.items] == [id]
    assert [one.reason for one in found.unusable] == ["its name is not UTF-8"]


@pytest.mark.parametrize("seconds", [2**40, 2**62])
async def test_a_time_that_is_none_holds_up_no_other(place: Tasks, seconds: int):
    """A file with an invalid time, on file systems that store one, is reported; others are not affected."""
    root = Path("/dev/shm")
    if not os.access(root, os.W_OK):
        pytest.skip("there is no memory file system that can be written")
    with TemporaryDirectory(dir=root) as kept:
        place = Tasks(Path(kept))
        (place.root / "late.md").write_text("x")
        os.utime(place.root / "late.md", (0, seconds))
        id = await place.put("good", "do")
        found = await place.open().fetch(100)
        assert [item.id for item in found.items] == [id]
        assert [one.reason for one in found.unusable] == ["the time of its last change is not valid"]


async def test_a_link_cannot_be_claimed(place: Tasks, tmp_path_factory):
    """A claim does not read the target of a link; the link is moved to `failed`."""
    secret = tmp_path_factory.mktemp("outside") / "secret.md"
    secret.write_text("secret")
    (place.root / "link.md").symlink_to(secret)
    assert await place.open().claim("link.md", TOKEN) is None
    assert (place.root / "failed" / f"{TOKEN}.link.md").is_symlink()


async def test_rooms_that_are_links_are_not_entered(place: Tasks, tmp_path_factory):
    """If `.claimed` is a link to elsewhere, nothing is moved there."""
    outside = tmp_path_factory.mktemp("outside")
    (place.root / ".claimed").symlink_to(outside)
    id = await place.put("task", "do")
    with pytest.raises(InfrastructureFault, match="cannot be handled"):
        await place.open().claim(id, TOKEN)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "id", ["../outside.md", "sub/task.md", "/etc/passwd", ".claimed", "absent.md", "x" * 300 + ".md"]
)
async def test_names_lead_nowhere_else(place: Tasks, id):
    """A claim of a name that is no task file of this directory returns nothing."""
    (place.root.parent / "outside.md").write_text("x")
    (place.root / "sub").mkdir()
    (place.root / "sub" / "task.md").write_text("x")
    assert await place.open().claim(id, TOKEN) is None
    (place.root.parent / "outside.md").unlink()


async def test_ends_lie_where_they_are_looked_for(place: Tasks):
    """Done and failed tasks are moved to directories of these names, each with its result."""
    source = place.open()
    for number, outcome in enumerate(Outcome):
        claim = await source.claim(await place.put(f"task {outcome}", "do"), f"claim{number:08}")
        assert claim is not None
        await source.complete(claim, outcome, "said")
        assert (place.root / outcome / claim.handle).read_text() == "do"
        assert (place.root / outcome / f"{claim.handle}.result").read_text() == "said\n"


async def test_what_cannot_be_used_is_refused(place: Tasks, tmp_path: Path):
    """A missing directory, and a claim's token that could be part of a path, are errors."""
    with pytest.raises(UsageError, match="not a directory"):
        DirectorySource(tmp_path / "absent")
    source = place.open()
    with pytest.raises(UsageError, match="8 to 64 letters"):
        await source.claim("a.md", "../../x")
