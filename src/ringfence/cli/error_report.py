"""Reports an error that ends a command: one line on stderr, and an exit code."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import ExitCode, InfrastructureFault, RingfenceError, is_full, next_step
from ringfence.escape import visible
from ringfence.job.outcome import root_cause, write_trace
from ringfence.secret import Redactor, environment_secrets, registered_secrets


def report_error(error: BaseException) -> ExitCode:
    """Print an error as one line; save the traceback of an internal error to a file that the line names."""
    redactor = Redactor([*environment_secrets(), *registered_secrets()])
    cause = root_cause(error)
    if isinstance(cause, RingfenceError):
        line, code = str(cause), cause.exit_code
    elif isinstance(cause, OSError) and cause.filename is not None:
        file = Path(os.fsdecode(cause.filename))
        is_state = file.is_relative_to(state_dir()) or state_dir().is_relative_to(file)
        line = f"{str(file)!r}: {cause.strerror}; {next_step(cause, is_state=is_state)}"
        code = ExitCode.INFRASTRUCTURE
    elif isinstance(cause, OSError) and is_full(cause):
        line = f"the output could not be written: {cause.strerror}; {next_step(cause)}"
        code = ExitCode.INFRASTRUCTURE
    else:
        line = f"internal error: {type(cause).__name__}: {cause}; {_save_traceback(error, redactor)}"
        code = ExitCode.INFRASTRUCTURE
    sys.stderr.write(f"ringfence: {visible(redactor.redact(line), one_line=True)}\n")
    return code


def _save_traceback(error: BaseException, redactor: Redactor) -> str:
    name = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%f}.txt"
    try:
        file: Path = make_private_dir(state_dir() / "crashes") / name
        write_trace(error, file, redactor)
    except (OSError, InfrastructureFault) as exc:
        return f"its traceback could not be saved ({exc})"
    return f"please report it with {str(file)!r}"
