"""A sandbox whose bwrap is killed while it makes it."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.bubblewrap.backend import end_orphans
from ringfence.sandbox.bubblewrap.bwrap import find_bwrap
from ringfence.sandbox.protocol.loader import guest_arguments


def _waits(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def _held_bwrap() -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A bwrap that is held before it lets its sandbox begin, and the sandbox's first process."""
    bwrap = find_bwrap()
    assert bwrap is not None
    held, holds = os.pipe()
    told, tells = os.pipe()
    command = [
        str(bwrap.path), "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/",
        "--info-fd", str(tells), "--userns-block-fd", str(held), "--", "/usr/bin/python3", *guest_arguments(),
    ]  # fmt: skip
    library = {"LD_LIBRARY_PATH": str(bwrap.library_dir)} if bwrap.library_dir else {}
    with subprocess.Popen(command, pass_fds=(held, tells), env={**os.environ, **library}) as outer:
        try:
            _waits(lambda: _children(outer.pid))
            yield outer, _children(outer.pid)[0]
        finally:
            outer.kill()
            for descriptor in (held, holds, told, tells):
                os.close(descriptor)


def test_what_waits_for_a_dead_bwrap_is_ended():
    """While its bwrap lives it is left alone."""
    with _held_bwrap() as (outer, first):
        end_orphans()
        assert Path(f"/proc/{first}").exists()
        outer.kill()
        outer.wait()
        end_orphans()
        _waits(lambda: not Path(f"/proc/{first}").exists())


@pytest.mark.parametrize("backend", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_living_sandbox_is_left_alone(backend: str, request: pytest.FixtureRequest):
    """Whoever is its first process."""
    image = request.getfixturevalue("images")("docker") if backend == "docker" else None

    async def use() -> str:
        async with Sandbox.open(SandboxSpec(backend=backend, image=image)) as sandbox:
            end_orphans()
            return (await sandbox.run(["echo", "here"])).stdout

    assert anyio.run(use) == "here\n"
