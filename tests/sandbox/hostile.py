"""A guest that is the test and does its worst: what those who wait for it see, and what memory it costs the host."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from tests.cases import examples
from tests.sandbox.conftest import PipeFence

from ringfence.errors import RingfenceError, SandboxDied, SandboxStartFailed

ROOT = Path(__file__).parents[2]
PATIENCE_S = 10.0


class HostileGuest(RuleBasedStateMachine):
    """Callers wait while a guest does its worst: none sees but typed errors, and each is woken in the end."""

    expected: tuple[type[Exception], ...] = (RingfenceError,)
    """What a caller may see."""
    holder_waits = False
    """Whether the holder of the sandbox waits for something of the guest's, and so learns of its death."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.guest = PipeFence()
        self.guest.greet()
        self.callers: list[asyncio.Task[None]] = []
        self.opened = asyncio.Event()
        self.over = asyncio.Event()
        self.life = self.loop.create_task(self._live())
        self.step()

    async def _live(self) -> None:
        async with self.guest.open() as sandbox:
            self.sandbox = sandbox
            self.opened.set()
            await self.hold()

    async def hold(self) -> None:
        """Hold the sandbox until the end."""
        await self.over.wait()

    def step(self) -> None:
        """Let everybody go on, until the next frame."""
        for _ in range(8):
            self.loop.run_until_complete(asyncio.sleep(0))

    def call(self, act: Coroutine[Any, Any, object]) -> None:
        """Somebody waits for something."""

        async def caller() -> None:
            with suppress(*self.expected):
                await act

        self.callers.append(self.loop.create_task(caller()))
        self.step()

    def teardown(self) -> None:
        """Whatever was sent, when the guest is gone everybody has been told."""
        self.guest.hang_up()
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._end(), PATIENCE_S))
            assert self.guest.is_killed
        finally:
            self.loop.close()

    async def _end(self) -> None:
        await asyncio.gather(*self.callers)
        self.over.set()
        try:
            await self.life
        except (SandboxDied, SandboxStartFailed):
            assert self.holder_waits or not self.opened.is_set()


def run_guest(machine: type[HostileGuest], *, count: int, steps: int) -> None:
    """Have a guest do as many things as `steps`, `count` times; fewer times in the fast suite."""
    chosen = settings(
        max_examples=examples(count),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


_MEASURE = """
import itertools, os, time
import anyio
from ringfence.errors import SandboxDied, SandboxFileError
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol import session
from tests.memory import peak_kib
from tests.sandbox.conftest import PipeFence
session._CLIENT_GRACE_S = 0.2

def frame(kind, channel, payload):
    return frames.HEADER.pack(len(payload), channel, kind) + payload

async def main():
    guest = PipeFence()
    guest.greet()
    async def flood(make):
        began = taken = time.monotonic()
        sent, rest = 0, b""
        while sent < 200_000_000 and not guest.is_killed:
            now = time.monotonic()
            if now - began > 3 or now - taken > 0.5:
                break
            rest = rest or make()
            try:
                count = os.write(guest.peer_out, rest)
                sent, rest, taken = sent + count, rest[count:], now
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return
            await anyio.lowlevel.checkpoint()
        guest.hang_up()
    async def both(call, attack):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(quietly, call)
            await anyio.lowlevel.checkpoint()
            await attack
    async def quietly(call):
        try:
            await call
        except (SandboxDied, SandboxFileError):
            pass
    async with guest.open() as sandbox:
        before = peak_kib()
        try:
            await attack(guest, sandbox, flood, both)
        except (SandboxDied, SandboxFileError):
            pass
    print(peak_kib() - before)
"""


def growth_kib(attack: str, definitions: str = "") -> int:
    """By how many KiB a process of its own grows that holds a sandbox, while the guest sends what nobody reads.

    Args:
        attack: Lines of Python that have `guest`, `sandbox`, `flood(make)`, which sends what `make` makes until nothing
            is taken any more, and `both(call, flood)`.
        definitions: Lines before them.
    """
    code = f"{_MEASURE}\n{definitions}\nasync def attack(guest, sandbox, flood, both):\n"
    code += f"{textwrap.indent(attack.strip(), '    ')}\nanyio.run(main)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
