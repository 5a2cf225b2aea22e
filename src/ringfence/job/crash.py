"""An error of our own making: kept whole beside the record, told in a line."""

import traceback
from pathlib import Path

from ringfence.secret import Redactor

_NAME = "error.txt"


def keep_crash(error: BaseException, run_dir: Path, redactor: Redactor) -> tuple[Path, str | None]:
    """Write the traceback to the run's directory; returns the file, and what went wrong with that if anything."""
    file = run_dir / _NAME
    try:
        write_trace(error, file, redactor)
    except OSError as exc:
        return file, f"{str(file)!r} could not be written: {exc.strerror}"
    return file, None


def write_trace(error: BaseException, file: Path, redactor: Redactor) -> None:
    """Write the traceback without secrets.

    Raises:
        OSError: It cannot be written.
    """
    trace = "".join(traceback.format_exception(error)).encode("utf-8", "replace")
    file.write_bytes(redactor.redact(trace))
