"""A backend that does not see the host's files: a guest over two pipes, whose workspace is in a directory of its own.

It fences nothing. It shows how little a backend has to do: start the guest, hand over its stream, say how it ended, and
keep tar streams in a volume.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, Process

from ringfence.errors import InfrastructureFault, LimitReached, RingfenceError, SandboxStartFailed
from ringfence.process import start_process
from ringfence.sandbox.base import Backend, EndReason, Facts, Fence, Launch, Traits, Volume
from ringfence.sandbox.bubblewrap.bwrap import find_bwrap
from ringfence.sandbox.protocol.stream import pipe_stream
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.tar.stream import TOP

_EXIT_S = 8.0


class OwnVolume(Volume):
    """A directory that only this backend looks into."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="ringfence-test-volume-")
        self.uid, self.gid = os.getuid(), os.getgid()

    async def put(self, file: BinaryIO) -> None:
        """Unpack the tar file there."""
        await self._tar("-x", file, subprocess.DEVNULL)

    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Pack what is there, also what its owner may not read."""
        await anyio.run_process(["chmod", "-R", "u+rX", self.name], check=False)
        await self._tar("-c", subprocess.DEVNULL, file, TOP)
        if os.fstat(file.fileno()).st_size > limit_bytes:
            raise LimitReached("disk", allowed=limit_bytes, used=os.fstat(file.fileno()).st_size)

    async def _tar(self, what: str, stdin: BinaryIO | int, stdout: BinaryIO | int, *paths: str) -> None:
        command = ["tar", what, "-f", "-", "-C", self.name, "--numeric-owner", "--format=posix", *paths]
        done = await anyio.run_process(command, stdin=stdin, stdout=stdout, check=False)
        if done.returncode:
            raise InfrastructureFault(f"could not move the workspace: tar ended with code {done.returncode}")

    async def remove(self) -> None:
        """Remove the directory."""
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(self.name, ignore_errors=True))


class OwnFence(Fence):
    """The guest's process."""

    def __init__(self, process: Process, stream: ByteStream, facts: Facts) -> None:
        self.facts = facts
        self.stream = stream
        self._process = process
        self._is_killed = False

    async def wait(self) -> EndReason:
        """Wait until the process has ended."""
        await self._process.wait()
        if self._is_killed:
            return EndReason("killed", "it was closed")
        return EndReason("exited", f"the guest ended with code {self._process.returncode}")

    async def kill(self) -> str | None:
        """End its stream: the guest then kills everything it started, and ends."""
        self._is_killed = True
        await self.stream.send_eof()
        with anyio.move_on_after(_EXIT_S):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self.stream.aclose()
        return None


class OwnBackend(Backend):
    """Starts the guest with its volume in the workspace's place."""

    name = "own"
    traits = Traits(
        unseen="this backend has files of its own",
        unenforced=dict.fromkeys(("memory", "cpus", "pids"), "nothing is limited"),
    )

    async def unavailable(self, spec: SandboxSpec | None = None) -> RingfenceError | None:
        """Only bwrap is needed, which mounts the volume."""
        return None if find_bwrap() else SandboxStartFailed("there is no bwrap")

    async def make_volume(self, launch: Launch) -> OwnVolume:
        """Make an empty directory."""
        return OwnVolume()

    async def start(self, launch: Launch) -> OwnFence:
        """Start the guest over two pipes."""
        bwrap = find_bwrap()
        assert bwrap is not None
        command = [str(bwrap.path), "--dev-bind", "/", "/"]
        workspace = launch.placement.workspace
        if launch.volume is not None:
            how = "--ro-bind" if launch.placement.workspace_read_only else "--bind"
            command += [how, str(Path(launch.volume.name, TOP)), str(workspace)]
        stream, stdin, stdout = pipe_stream()
        try:
            process = await start_process(
                [*command, sys.executable, *launch.argv], stdin=stdin, stdout=stdout, stderr=None
            )
        except BaseException:
            await stream.aclose()
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        facts = Facts(
            backend=self.name,
            enforced={"memory": "none", "pids": "none", "cpus": "none", "disk": "soft"},
            is_fence=False,
            home=str(Path.home()),
            environment={"PATH": os.environ["PATH"], "HOME": str(Path.home()), "LANG": "C.UTF-8"},
            watched_paths=(str(workspace),) if workspace else (),
        )
        return OwnFence(process, stream, facts)
