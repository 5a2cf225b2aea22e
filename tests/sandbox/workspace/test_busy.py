"""A workspace is changed by one run at a time."""

import os
from pathlib import Path

import pytest
from tests.sandbox.workspace.runs import claimed

from ringfence.errors import PolicyRefused


@pytest.fixture
def mine(workspace: Path, own) -> Path:
    """A workspace that is worked on itself, also by root."""
    if os.geteuid() == 0:
        own(workspace)
    return workspace


@pytest.mark.parametrize("mode", ["clone", "read_only"])
async def test_others_need_not_wait(mine: Path, state: Path, mode):
    """A run on a clone, or one that only reads, works beside another run; a third that writes is still refused."""
    async with (
        claimed(mine, "bind", run="first", state=state),
        claimed(mine, mode, run="second", state=state),
    ):
        with pytest.raises(PolicyRefused, match="run 'first' is working"):
            await claimed(mine, "bind", run="third", state=state).__aenter__()


async def test_the_host_claims_too(mine: Path, state: Path):
    """A run without a sandbox locks its workspace as well."""
    async with (
        claimed(mine, None, run="first", state=state, is_fenced=False),
    ):
        with pytest.raises(PolicyRefused, match="first"):
            await claimed(mine, "bind", run="second", state=state).__aenter__()


@pytest.mark.parametrize(("first", "second"), [(".", "app/web"), ("app/web", "."), ("app", "app/web")])
async def test_one_within_another_is_refused(mine: Path, state: Path, own, first: str, second: str):
    """A run on a directory within, or around, the workspace of another run is refused: it could swap its directories."""
    (mine / "app" / "web").mkdir(parents=True)
    if os.geteuid() == 0:
        own(mine)
    async with claimed(mine / first, "bind", run="first", state=state):
        with pytest.raises(PolicyRefused, match=r"run 'first' is working on .*--wait") as caught:
            await claimed(mine / second, "bind", run="second", state=state).__aenter__()
        assert caught.value.rule == "workspace-busy"
    async with claimed(mine / second, "bind", run="second", state=state):
        pass


async def test_neighbours_do_not_wait(mine: Path, state: Path, own):
    """Directories side by side are worked on at the same time, also where one's name begins like the other's."""
    for name in ("app", "app2"):
        (mine / name).mkdir()
    if os.geteuid() == 0:
        own(mine)
    async with (
        claimed(mine / "app", "bind", run="first", state=state),
        claimed(mine / "app2", "bind", run="second", state=state),
    ):
        with pytest.raises(PolicyRefused, match="first"):
            await claimed(mine / "app", "bind", run="third", state=state).__aenter__()
