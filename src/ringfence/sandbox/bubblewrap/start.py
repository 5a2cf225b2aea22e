"""A bwrap on its way up: its pipes, its process, its group; all are let go of if it does not come up."""

import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import Process

from ringfence.errors import SandboxStartFailed
from ringfence.process import kill_group, start_process
from ringfence.sandbox.base import Placement
from ringfence.sandbox.bubblewrap.bwrap import Bwrap, explain
from ringfence.sandbox.bubblewrap.limits import Limits
from ringfence.sandbox.bubblewrap.mounts import Arguments
from ringfence.sandbox.bubblewrap.stage import Staging
from ringfence.sandbox.cgroup import Cgroup
from ringfence.sandbox.protocol.stream import pipe_stream

LAST_WORDS = 4096
"""Bytes kept of what was written last on stderr."""


class Start:
    """One start; made by `starting`."""

    def __init__(self) -> None:
        self.arguments = Arguments()
        self.group: Cgroup | None = None
        self._process: Process | None = None
        self.stream, guest_stdin, guest_stdout = pipe_stream()
        self.stderr_fd, guest_stderr = os.pipe()
        os.set_blocking(self.stderr_fd, False)
        self._args_read, self._args_write = os.pipe()
        self._guest_ends = (guest_stdin, guest_stdout, guest_stderr)

    async def stage(self, interpreter: str) -> None:
        """Start the program that stages, for a caller who is root; it waits for its orders."""
        staging = self.arguments.staging = Staging()
        argv, wire = staging.program(interpreter)
        await self._launch(argv, (wire,))

    async def run(
        self, bwrap: Bwrap, command: tuple[str, ...], placement: Placement, limits: Limits
    ) -> Process:
        """Have bwrap, under its limits, read the arguments and become `command`."""
        args_fd = self.arguments.pass_descriptor(self._args_read)
        words = ["--args", str(args_fd), "--", *command]
        group = self.group = limits.make()
        staging = self.arguments.staging
        if staging is None:
            process = await self._launch([str(bwrap.path), *words], tuple(self.arguments.descriptors), limits)
            # bwrap waits for its arguments: until they come it has not forked, and no process escapes.
            if group is not None:
                group.add(process.pid)
        else:
            assert self._process is not None
            process = self._process
            program, env = staging.add(bwrap.path), {}
            if bwrap.library_dir is not None:
                env["LD_LIBRARY_PATH"] = str(staging.add(bwrap.library_dir))
            entrances = () if group is None else group.entrances()
            argv = [str(program), *words]
            await staging.go_on(argv, env, uid=placement.uid, gid=placement.gid, entrances=entrances)
        self.group = group or await limits.find(process.pid)
        await _hand_over(self._args_write, self.arguments.encoded())
        return process

    async def _launch(
        self, argv: list[str], pass_fds: tuple[int, ...], limits: Limits | None = None
    ) -> Process:
        stdin, stdout, stderr = self._guest_ends
        self._process = await start_process(
            [*(limits.prefix if limits else ()), *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=limits.environment if limits else {},
            pass_fds=pass_fds,
        )
        return self._process

    def close(self) -> None:
        """Let go of what only the start needs."""
        self.arguments.close()
        for descriptor in (*self._guest_ends, self._args_read, self._args_write):
            os.close(descriptor)

    async def undo(self) -> bytes:
        """It did not come up: end it all; what was said on stderr."""
        said = read_words(self.stderr_fd)
        os.close(self.stderr_fd)
        await self.stream.aclose()
        with anyio.CancelScope(shield=True):
            if self._process is not None:
                await kill_group(self._process, grace_s=0.0)
            if self.group is not None:
                await anyio.to_thread.run_sync(remove_group, self.group)
        return said


@asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """A start, undone where the context is left by an exception.

    Raises:
        SandboxStartFailed: As inside, with bwrap's own words if it left any.
    """
    start = Start()
    try:
        yield start
    except BaseException as exc:
        said = await start.undo()
        if said and isinstance(exc, SandboxStartFailed):
            # It was gone before it could be put under its limits; why is in its own words.
            raise SandboxStartFailed(
                f"the sandbox did not start: {explain(said.decode(errors='replace'))}"
            ) from exc
        raise
    finally:
        start.close()


def read_words(stderr_fd: int) -> bytes:
    """What is there to be read of a stderr, bounded."""
    try:
        return os.read(stderr_fd, LAST_WORDS)
    except BlockingIOError:
        return b""


def remove_group(group: Cgroup) -> None:
    """End what is in a control group, and the group."""
    group.kill()
    group.remove()


async def _hand_over(pipe: int, data: bytes) -> None:
    """Write what bwrap reads to its end. A fresh pipe takes what a page holds; a thread costs more than that."""
    if len(data) <= select.PIPE_BUF:
        _write_all(pipe, data)
    else:
        await anyio.to_thread.run_sync(_write_all, pipe, data)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    with suppress(BrokenPipeError):  # bwrap is gone; its last words say why
        while view:
            view = view[os.write(descriptor, view) :]
