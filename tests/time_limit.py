"""Ends a test that exceeds its time limit, again and again until it has ended.

pytest-timeout raises once, and what it raises Hypothesis takes for a failure of the test, which it then runs again. A
test that waits for a process in a `with` statement, or that Hypothesis runs again, would hang without limit, and with it
the whole run.
"""

import asyncio
import faulthandler
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

_AGAIN_S = 20.0


class TimeLimitExceeded(BaseException):
    """A test exceeded its limit. It is no `Exception`, so that nothing between handles it as a failure of its own."""


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(settings: Any) -> bool | None:
    """Interrupt the test at its limit, and every 20 seconds from then on."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        assert sys.__stderr__ is not None
        faulthandler.dump_traceback(sys.__stderr__)
        with suppress(RuntimeError):  # no event loop runs
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.__stderr__)
        raise TimeLimitExceeded(f"the test exceeded its limit of {settings.timeout:g} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, _AGAIN_S)
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer() -> bool:
    """The test has ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True
