"""The task of a run: from the command line, a file or stdin."""

import os
import sys
from pathlib import Path

from ringfence.errors import UsageError

_LIMIT_BYTES = 16 * 1024**2


def read_task(prompt: str | None, file: Path | None) -> str:
    """The text of the task; bytes that are no UTF-8 are replaced.

    Raises:
        UsageError: It is given twice or not at all, is empty or too long, or cannot be read.
    """
    if (prompt is None) == (file is None):
        raise UsageError("give the task once: as PROMPT, as - for stdin, or by --file FILE")
    if file is not None:
        data = _read(file)
    elif prompt == "-":
        data = sys.stdin.buffer.read(_LIMIT_BYTES + 1) if sys.stdin else b""
    else:
        data = os.fsencode(prompt or "")
    if len(data) > _LIMIT_BYTES:
        raise UsageError(
            f"the task is longer than {_LIMIT_BYTES} bytes; put the material in the workspace instead"
        )
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("the task is empty; say what the agent shall do")
    return text


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_LIMIT_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(f"--file {str(file)!r} cannot be read: {reason}; name a file with the task") from exc
