"""Sandboxes to test on: a workspace that whoever runs the tests may lend, and ways to open one."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.removal import remove_tree
from ringfence.sandbox import Facts, Placement, Sandbox, SandboxSpec
from ringfence.sandbox.base import EndReason, Fence
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.session import Peer
from ringfence.sandbox.protocol.stream import pipe_stream
from ringfence.sandbox.registry import get_backend

OTHER_UID = 1500
"""Somebody who is not root, as whom root's tests own a workspace."""

Opener = Callable[..., AbstractAsyncContextManager[Sandbox]]

CONTAINERS = ("docker", "podman", "gvisor")
_IMAGES = (reference("base"), "ringfence-smoke:base", "ringfence-dev:1")


def image_for(backend: str) -> str | None:
    """An image to test a backend with: `TEST_CONTAINER_IMAGE`, else one that is there. Skips where there is none.

    Where engines must be there (`TEST_REQUIRES_ENGINES=1`) it fails instead.
    """
    if backend not in CONTAINERS:
        return None
    named = os.environ.get("TEST_CONTAINER_IMAGE")
    images = (named,) if named else _IMAGES
    lacking = anyio.run(_lacking, backend, images)
    if isinstance(lacking, tuple):
        return lacking[0]
    if os.environ.get("TEST_REQUIRES_ENGINES"):
        pytest.fail(lacking)
    pytest.skip(lacking)


async def _lacking(backend: str, images: tuple[str, ...]) -> tuple[str] | str:
    """The image, in a tuple, or why there is none."""
    from ringfence.sandbox.docker.client import EngineError, open_engine

    lacking = await get_backend(backend).unavailable()
    if lacking is not None:
        return f"{backend}: {lacking}"
    async with await open_engine("podman" if backend == "podman" else "docker") as engine:
        for image in images:
            with suppress(EngineError):
                await engine.image(image)
                return (image,)
    return f"{backend}: none of the images {', '.join(images)}; `ringfence image build --bootstrap` makes one"


@pytest.fixture
def workspace() -> Iterator[Path]:
    """An empty workspace that can be shown as it is, short of `/tmp`'s own length limits."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    if os.geteuid() == 0:
        os.chown(directory, OTHER_UID, OTHER_UID)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A workspace in a directory of its own, next to which the attacks may write."""
    outer = Path(tempfile.mkdtemp(prefix="ringfence-attack-"))
    workspace = outer / "workspace"
    workspace.mkdir()
    if os.geteuid() == 0:
        outer.chmod(0o711)
        os.chown(workspace, OTHER_UID, OTHER_UID)
    yield workspace
    remove_tree(outer)


@pytest.fixture(scope="session")
def images() -> Callable[[str], str | None]:
    """`image_for`, asked once for each backend; outside of any event loop."""
    found = dict[str, str | None]()

    def of(backend: str) -> str | None:
        if backend not in found:
            with ThreadPoolExecutor(1) as thread:
                found[backend] = thread.submit(image_for, backend).result()
        return found[backend]

    return of


@pytest.fixture
def opener(images: Callable[[str], str | None]) -> Iterator[Callable[[str], Opener]]:
    """Opens sandboxes of a backend, each on a workspace of its own."""
    made: list[Path] = []

    def of(backend: str) -> Opener:
        image = images(backend)

        @asynccontextmanager
        async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
            directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
            made.append(directory)
            if os.geteuid() == 0:
                os.chown(directory, OTHER_UID, OTHER_UID)
            # gVisor's limit on processes is a watchdog, a rootless Podman's may be: that has to be accepted.
            is_soft = backend in ("gvisor", "kubernetes") or (backend == "podman" and os.geteuid() != 0)
            fixed = {"backend": backend, "image": image, "soft_limits": is_soft}
            spec = SandboxSpec(**{**fixed, "workspace": directory, **changes})
            async with Sandbox.open(spec) as sandbox:
                yield sandbox

        return open_sandbox

    yield of
    for directory in made:
        # Not rmtree: some checks leave trees deeper than it goes.
        subprocess.run(["rm", "-rf", "--", directory], check=True)


class PipeFence(Fence):
    """A fence whose guest is the test: it writes what the guest would send, and reads what it is sent."""

    def __init__(self) -> None:
        self.facts = Facts(backend="pipes", is_fence=False, environment={"PATH": "/bin"})
        self.stream, self.peer_in, self.peer_out = pipe_stream()
        for descriptor in (self.peer_in, self.peer_out):
            os.set_blocking(descriptor, False)
        fcntl.fcntl(self.peer_in, fcntl.F_SETPIPE_SZ, 64 * 1024)  # little goes to a guest that does not read
        self.is_killed = False
        self.peer: Peer = "new guest"
        self.leaves_by_itself = True
        self._kept = [self.peer_in, self.peer_out]

    async def wait(self) -> EndReason:
        """Ends at once, unless the guest is one that does not go."""
        if not self.leaves_by_itself:
            await anyio.sleep_forever()
        return EndReason("exited", "the test's guest is gone")

    async def kill(self) -> str | None:
        """Close our ends."""
        self.is_killed = True
        await self.stream.aclose()
        return None

    def hang_up(self) -> None:
        """The guest closes its ends."""
        while self._kept:
            os.close(self._kept.pop())

    def say(self, data: bytes) -> bool:
        """The guest sends bytes; False if nobody takes them now."""
        try:
            return bool(self._kept) and os.write(self.peer_out, data) == len(data)
        except (BlockingIOError, BrokenPipeError):
            return False

    def frame(self, kind: int, channel: int = 0, payload: bytes = b"") -> bool:
        """The guest sends a frame."""
        return self.say(frames.HEADER.pack(len(payload), channel, kind) + payload)

    def record(self, kind: int, channel: int, fields: Mapping[str, object]) -> bool:
        """The guest sends a frame with a record in it."""
        return self.frame(kind, channel, frames.encode_record(fields.items()))

    def greet(self) -> None:
        """The guest's proper first frame."""
        self.record(frames.HELLO, 0, {"version": frames.VERSION, "uid": 1000, "undumpable": 1})

    def open(self, **fields: Any) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox on this fence."""
        spec = SandboxSpec(backend="host", **fields)
        placement = Placement(1, 1, None, None)
        return Sandbox(
            self, spec, placement, sandbox_id="hostile", chosen_because="", peer=self.peer
        ).running()


@pytest.fixture
def guest() -> Iterator[PipeFence]:
    """A guest that is the test."""
    fence = PipeFence()
    yield fence
    fence.hang_up()
