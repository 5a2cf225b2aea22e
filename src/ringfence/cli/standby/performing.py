"""The command itself, in a fork, from its first line to the end that Python gives a program."""

import atexit
import gc
import sys
import threading
import traceback
from typing import Any


def perform() -> int:
    """Do what `sys.argv` says; the exit code that Python would end with."""
    gc.enable()
    code = _done()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
    atexit._run_exitfuncs()
    return code if _are_flushed() else 120


def _done() -> int:
    from ringfence.cli import start_here

    try:
        start_here()
    except SystemExit as exc:
        return _code(exc.code)
    except BaseException:  # noqa: BLE001 -- the boundary of the process
        traceback.print_exc()
        return 1
    return 0


def _code(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    sys.stderr.write(f"{given}\n")
    return 1


def _are_flushed() -> bool:
    """Whether all that was written is out. As Python does at its end, by its exit code 120."""
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            flushed = False
    return flushed
