"""The outermost call of every command: opens missing streams, reports errors and sets the exit code."""

import gc
import os
import sys
from collections.abc import Callable

from ringfence.errors import ExitCode


def end_by(command: Callable[[], int]) -> None:
    """Run a command and exit with its code; print an error as one line on stderr, with a documented code."""
    _fill_streams()
    code = _exit_code(command)
    try:
        sys.stdout.flush()
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes again at exit, and would print an error
        code = code or (ExitCode.BROKEN_PIPE if isinstance(exc, BrokenPipeError) else _report(exc))
    gc.freeze()  # Python's last collection would walk all modules, which takes up to half a second
    sys.exit(code)


def _fill_streams() -> None:
    """Open /dev/null for each missing standard stream; otherwise the next opened file would get its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _exit_code(command: Callable[[], int]) -> int:
    try:
        return command()
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except SystemExit as exc:
        return _exit_code_of(exc)
    except BaseException as exc:  # noqa: BLE001 -- the boundary of the command
        return _report(exc)


def _exit_code_of(error: SystemExit) -> int:
    """The exit code for a `SystemExit`. Only Typer may raise it; from anywhere else it is a bug.

    Typer raises it after it has printed or installed a completion, and when the reader of its output has left.
    """
    if isinstance(error.__context__, BrokenPipeError):
        return ExitCode.BROKEN_PIPE
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    if raised_in.partition(".")[0] == "typer":
        return error.code if isinstance(error.code, int) else ExitCode.OK
    return _report(error)


def _report(error: BaseException) -> int:
    from ringfence.cli.error_report import report_error

    return report_error(error)
