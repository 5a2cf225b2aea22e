"""A second process that asks for the status of known files while the first one does: two kernel calls at a time.

It begins with the last directory, the first process with the first one, until they meet. Neither waits for the other:
where the second is late, or cannot run at all, the first one asks for everything.
"""

import marshal
import os
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio.to_thread
from anyio.abc import Process

from ringfence.errors import InfrastructureFault
from ringfence.process import DEVNULL, kill_group, start_process
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot import statuses
from ringfence.sandbox.workspace.snapshot.known import KnownFiles

_FEWEST, _MOST = 5_000, 1_000_000
"""Files: the program's start takes as long as some thousand; all names are handed over at once."""


class Answers:
    """What the second process has found so far.

    Args:
        source: A descriptor of its answers that does not block; None: there is no such process.
    """

    def __init__(self, source: int | None = None) -> None:
        self.source = source
        """Becomes readable when there is more."""
        self._told = bytearray()

    def told(self) -> bytearray:
        """For each of the last directories, the very last first, whether all its files are as known."""
        if self.source is not None:
            with suppress(BlockingIOError):
                self._told += os.read(self.source, 1 << 20)
        return self._told


@asynccontextmanager
async def second_process(known: KnownFiles, root: Path, actor: Actor) -> AsyncIterator[Answers]:
    """Let a second process look at known files; it goes at the end.

    Args:
        known: The files.
        root: The directory they are in.
        actor: As whom it looks.
    """
    is_of_use = _FEWEST <= len(known) <= _MOST and sys.executable and hasattr(os, "memfd_create")
    if not is_of_use or len(os.sched_getaffinity(0)) < 2:
        yield Answers()
        return
    try:
        source, process = await _started(known, root, actor)
    except (InfrastructureFault, OSError):
        yield Answers()
        return
    try:
        yield Answers(source)
    finally:
        with anyio.CancelScope(shield=True):
            await kill_group(process, grace_s=0)
        os.close(source)


async def _started(known: KnownFiles, root: Path, actor: Actor) -> tuple[int, Process]:
    """The descriptor of the second process' answers, and that process."""
    # It takes the owner's identity by itself: one that was started with it could be stopped by the owner's other
    # processes, and made to answer what they like.
    identity = [str(actor.uid), str(actor.gid)] if actor.switches else []
    with ExitStack() as stack:
        question = await anyio.to_thread.run_sync(_question, known)
        stack.callback(os.close, question)
        source, sink = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        stack.callback(os.close, sink)
        os.set_blocking(sink, True)
        try:
            process = await start_process(
                [sys.executable, "-I", "-S", statuses.__file__, *identity],
                stdin=question,
                stdout=sink,
                stderr=DEVNULL,
                cwd=root,
                env={},
            )
        except BaseException:
            os.close(source)
            raise
    return source, process


def _question(known: KnownFiles) -> int:
    """A descriptor of what the second process is asked."""
    folders = [(folder, packed.names, packed.status) for folder, packed in reversed(known.in_order)]
    question = os.memfd_create("files", os.MFD_CLOEXEC)
    try:
        with os.fdopen(question, "wb", closefd=False) as file:
            marshal.dump(folders, file)
    except OSError:
        os.close(question)
        raise
    os.lseek(question, 0, os.SEEK_SET)
    return question
