"""Files that a command writes for its user."""

from pathlib import Path

from ringfence.errors import UsageError


def replace_file(file: Path, text: str) -> None:
    """Put a file with this text there, in the place of whatever is.

    Raises:
        UsageError: It cannot be written.
    """
    from ringfence import filesystem

    # Never opened for writing where it is: a hostile repository may have put a link to ~/.bashrc there.
    try:
        filesystem.replace_file(file, text.encode(), mode=0o644)
    except OSError as exc:
        raise UsageError(f"cannot write {str(file)!r}: {exc.strerror}; choose another directory") from exc
