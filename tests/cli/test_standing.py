"""How commands about standing sandboxes end."""

import os
import signal

import anyio
import pytest

from ringfence.cli.sandbox.actions import run_interruptible
from ringfence.errors import InfrastructureFault


async def _breaks_when_stopped() -> int:
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await anyio.sleep_forever()
    finally:
        raise InfrastructureFault("what was copied stays behind in part; copy it again")


def test_what_breaks_by_an_interrupt_is_the_interrupt() -> None:
    """Whatever a command was in the middle of, Ctrl-C ends it with 130."""
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(_breaks_when_stopped)


def test_what_breaks_by_itself_is_told() -> None:
    """Without an interrupt an error stays one."""

    async def breaks() -> int:
        raise InfrastructureFault("the disk is full; make room")

    with pytest.raises((InfrastructureFault, ExceptionGroup)):
        run_interruptible(breaks)
