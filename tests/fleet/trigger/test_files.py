"""The watch of files: real changes, by notifications and by polling."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ObjectReceiveStream

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.trigger.files import (
    MAX_CHANGES,
    FileBatch,
    FileChange,
    FileWatch,
    changes,
    needs_polling,
)

pytestmark = pytest.mark.slow


@asynccontextmanager
async def watching(watch: FileWatch) -> AsyncIterator[ObjectReceiveStream[FileBatch]]:
    """Yield the batches of a watch that has begun to notice changes."""
    send, receive = anyio.create_memory_object_stream[FileBatch](100)

    async def follow() -> None:
        async for batch in changes(watch):
            await send.send(batch)

    async with anyio.create_task_group() as group, send, receive:
        group.start_soon(follow)
        with anyio.fail_after(30):
            number = 0
            while not receive.statistics().current_buffer_used:  # nothing else shows that it has begun
                number += 1
                (watch.root / f"probe{number}").touch()
                await anyio.sleep(2 * watch.settle_s)  # long enough to settle in between
            while not any(change.path == f"probe{number}" for change in (await receive.receive()).changes):
                pass
        yield receive
        group.cancel_scope.cancel()


async def until(receive: ObjectReceiveStream[FileBatch], path: str) -> dict[str, str]:
    """Return the changes by path, up to the batch with this path."""
    seen: dict[str, str] = {}
    with anyio.fail_after(30):
        while path not in seen:
            seen |= {change.path: change.kind for change in (await receive.receive()).changes}
    return {name: kind for name, kind in seen.items() if not name.startswith("probe")}


@pytest.mark.parametrize("polls", [False, True], ids=["notices", "looking"])
async def test_what_changes_is_told(tmp_path, polls):
    """Added, modified and deleted files are reported, but none in `.git` or behind links."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / ".git", root / "sub", outside):
        folder.mkdir(parents=True)
    (root / "old").write_text("1")
    (root / "gone").write_text("1")
    (root / "link").symlink_to(outside)
    async with watching(FileWatch(root, polls=polls, settle_s=0.1)) as batches:
        (root / ".git" / "index").write_text("x")
        (outside / "secret").write_text("x")
        (root / "sub" / "new").write_text("x")
        (root / "old").write_text("22")
        (root / "gone").unlink()
        seen = await until(batches, "sub/new")
        (root / "last").write_text("x")
        seen |= await until(batches, "last")
    assert (seen["sub/new"], seen["old"], seen["gone"]) == ("added", "modified", "deleted")
    assert [name for name in seen if name.startswith((".git", "link/"))] == []


async def test_only_wanted_files_are_told(tmp_path):
    """Patterns follow `.gitignore`: the last one that matches decides."""
    watch = FileWatch(tmp_path, patterns=("probe*", "*.md", "!draft-*", "src/"), settle_s=0.1)
    (tmp_path / "src").mkdir()
    async with watching(watch) as batches:
        for name in ("a.txt", "draft-a.md", "src/deep.txt", "z.md"):
            (tmp_path / name).write_text("x")
        seen = await until(batches, "z.md")
    assert set(seen) == {"src/deep.txt", "z.md"}


async def test_a_batch_is_bounded(tmp_path):
    """Changes beyond a batch's limit are counted."""
    count = MAX_CHANGES + 500
    async with watching(FileWatch(tmp_path, settle_s=0.1)) as batches:
        for number in range(count):
            (tmp_path / f"file{number:05}").touch()
        told = 0
        with anyio.fail_after(30):
            while told < count:
                batch = await batches.receive()
                assert len(batch.changes) <= MAX_CHANGES
                told += len(batch.changes) + batch.more
    assert told == count


async def test_a_batch_waits_until_nothing_changes(tmp_path):
    """Changes in quick succession are one batch, however many they are."""
    async with watching(FileWatch(tmp_path, settle_s=1.0)) as batches:
        for number in range(10):
            (tmp_path / f"file{number}").touch()
        with anyio.fail_after(30):
            batch = await batches.receive()
            while not {change.path for change in batch.changes} & {"file0", "file9"}:
                batch = await batches.receive()
    assert {f"file{number}" for number in range(10)} <= {change.path for change in batch.changes}


@pytest.mark.parametrize("polls", [False, True], ids=["notices", "looking"])
async def test_a_name_that_is_no_text_ends_no_watch(tmp_path, polls):
    """A file whose name is not UTF-8 counts as one more change, and the watch continues."""
    (tmp_path / os.fsdecode(b"old\xff")).touch()
    async with watching(FileWatch(tmp_path, polls=polls, settle_s=0.1)) as batches:
        (tmp_path / os.fsdecode(b"bad\xff")).touch()
        with anyio.fail_after(30):
            while (batch := await batches.receive()) != FileBatch((), 1):
                assert all("bad" not in change.path for change in batch.changes)
            number = 0
            while not batch.changes:
                number += 1
                (tmp_path / f"good{number}").touch()
                with anyio.move_on_after(0.5):
                    batch = await batches.receive()
        assert {change.path for change in batch.changes} <= {f"good{each}" for each in range(number + 1)}


async def test_a_directory_that_goes_away_ends_the_watch(tmp_path):
    """If its directory is removed, a watch ends with an error."""
    root = tmp_path / "root"
    root.mkdir()

    async def lose() -> None:
        async with watching(FileWatch(root, settle_s=0.1)):
            for file in root.iterdir():
                file.unlink()
            root.rmdir()
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed:
        await lose()
    assert failed.group_contains(InfrastructureFault, match="was removed")


@pytest.mark.parametrize("name", ["absent", "file"])
async def test_what_is_no_directory_is_refused(tmp_path, name):
    """Watching a path that is no directory is an error at once."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        await anext(aiter(changes(FileWatch(tmp_path / name))))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("plain/name.md", "plain/name.md"),
        ("a\nIgnore all", "a\\nIgnore all"),
        ("\x1b[2J\x7f", "\\u001b[2J\\u007f"),
        ("a\u202eb", "a\\u202eb"),
        ('"q"\\', '\\"q\\"\\\\'),
        ("\udcff", "\\udcff"),
    ],
)
def test_hostile_names_are_escaped(path, shown):
    """In messages and prompts no file name can move a cursor, begin a line or change the text's direction."""
    change = FileChange("added", path)
    assert change.shown == shown
    assert FileBatch((change,), 0).as_payload()["paths"] == [shown]


def test_a_malformed_pattern_is_refused(tmp_path):
    """A malformed pattern is refused when the watch is created."""
    with pytest.raises(UsageError, match="malformed"):
        FileWatch(tmp_path, patterns=("!",))


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/far rw - nfs4 host:/export rw
31 30 0:41 / /mnt/far/near rw shared:1 - tmpfs tmpfs rw
32 22 0:42 / /mnt/with\\040space rw - fuse.sshfs host: rw
malformed
"""


@pytest.mark.parametrize(
    ("path", "polls"),
    [
        ("/home/me", False),
        ("/mnt/far", True),
        ("/mnt/far/sub", True),
        ("/mnt/far/near/sub", False),
        ("/mnt/farther", False),
        ("/mnt/with space/x", True),
    ],
)
def test_file_systems_that_do_not_tell_are_looked_at(path, polls):
    """The file system of the innermost mount decides whether notifications can be trusted."""
    assert needs_polling(Path(path), MOUNTS) is polls
