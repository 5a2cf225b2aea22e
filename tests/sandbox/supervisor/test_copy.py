"""Copies to and from places that can be seen inside, where somebody changes them meanwhile."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest
from tests.sandbox.supervisor.conftest import Served, served

from ringfence.errors import SandboxFileError, UsageError
from ringfence.sandbox import Sandbox
from ringfence.sandbox.supervisor.copy import copy_in, copy_out

pytestmark = pytest.mark.anyio


def shown(folder: Path, workspace: Path) -> AbstractAsyncContextManager[Served]:
    """A served sandbox that shows a workspace as it is."""
    return served(folder, workspace=workspace, mode="bind")


_SWAPS = """\
import io, os, sys, tarfile, time
shown, elsewhere = {shown!r}, {elsewhere!r}
while not (found := [name for name in os.listdir(shown) if name.startswith(".ringfence-")]):
    time.sleep(0.001)
os.chdir(shown)
os.rename(found[0], "moved")
os.symlink(elsewhere, found[0])
with tarfile.open(mode="w|", fileobj=sys.stdout.buffer) as tar:
    for name in ("bait/file", "planted"):
        info = tarfile.TarInfo(name)
        info.size = 3
        tar.addfile(info, io.BytesIO(b"bad"))
"""


async def test_a_link_in_the_place_of_a_copy_leads_nowhere(workspace: Path, short_dir: Path):
    """A link that is put in the place of the copy's temporary directory is not followed."""
    elsewhere = short_dir / "elsewhere"
    (elsewhere / "bait").mkdir(parents=True)
    (elsewhere / "bait" / "secret").write_text("secret")
    tar = f"#!/usr/bin/python3\n{_SWAPS.format(shown=str(workspace), elsewhere=str(elsewhere))}"
    env = {"PATH": "/tmp/bin:/usr/bin:/bin"}
    async with shown(short_dir, workspace) as service, service.attached(env=env) as sandbox:
        await sandbox.write_file("/tmp/bin/tar", tar.encode(), mode=0o755)
        with suppress(SandboxFileError, UsageError):  # where the link was there before we looked
            await copy_out(sandbox, "/tmp/bait", workspace / "out")
    assert [path.name for path in elsewhere.rglob("*")] == ["bait", "secret"]
    assert not (workspace / "out" / "secret").exists()


async def _in(sandbox: Sandbox, folder: Path) -> object:
    return await copy_in(sandbox, folder / "file", "/tmp")


async def _out(sandbox: Sandbox, folder: Path) -> object:
    return await copy_out(sandbox, "/tmp/made", folder)


@pytest.mark.parametrize("copy", [_in, _out], ids=["in", "out"])
async def test_a_link_on_the_way_is_not_followed(
    workspace: Path, short_dir: Path, copy: Callable[[Sandbox, Path], Awaitable[object]]
):
    """A copy into or out of a workspace follows no link in its path."""
    elsewhere = short_dir / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("secret")
    async with shown(short_dir, workspace) as service, service.attached() as sandbox:
        await sandbox.run(["ln", "-s", str(elsewhere), "sub"])
        await sandbox.write_file("/tmp/made", b"bad")
        with pytest.raises(UsageError, match="through a link"):
            await copy(sandbox, workspace / "sub")
    assert [path.name for path in elsewhere.iterdir()] == ["file"]


async def test_why_nothing_came_out_is_told_in_one_line(workspace: Path, short_dir: Path):
    """What was not there inside is named once, whatever number of lines the archiver complains in."""
    async with shown(short_dir, workspace) as service, service.attached() as sandbox:
        with pytest.raises(
            SandboxFileError, match=r"'absent' out of the sandbox: tar: .*No such file"
        ) as error:
            await copy_out(sandbox, "absent", short_dir)
    assert len(str(error.value).splitlines()) == 1
