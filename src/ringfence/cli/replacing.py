"""Files that a command writes for its user."""

import os
from pathlib import Path

from ringfence.errors import UsageError


def replace_file(file: Path, text: str) -> None:
    """Put a file with this text there, in the place of whatever is.

    Raises:
        UsageError: It cannot be written.
    """
    # Never opened for writing where it is: a hostile repository may have put a link to ~/.bashrc there.
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        draft.replace(file)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(file)!r}: {exc.strerror}; choose another directory") from exc
