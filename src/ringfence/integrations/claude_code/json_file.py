"""JSON files in a directory that others may write to: read with bounds, and replaced without following a link."""

import errno
import json
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from ringfence.errors import ConfigurationError
from ringfence.strict_json import STRICT_DECODER

LIMIT_BYTES: Final = 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INDENTED = re.compile(r"\n([ \t]+)\S")


class JsonFile:
    """A JSON object in a file, and how that file is written.

    Args:
        folder: Descriptor of its directory, which has to stay open.
        path: The file, for errors; its last part is its name in `folder`.

    Attributes:
        content: Its content as it was read; None: it does not exist.
        document: Its object, to be changed in place; empty where it does not exist.

    Raises:
        ConfigurationError: It is a link, no regular file, somebody else's, larger than 1 MiB, or no JSON object
            without a repeated key.
    """

    def __init__(self, folder: int, path: Path) -> None:
        self.path = path
        self._folder = folder
        self._mode = 0o644
        self.content = self._read()
        self.document: dict[str, Any] = {} if self.content is None else self._parse(self.content)

    def has_changed(self) -> bool:
        """Return whether the document is another one than the file holds."""
        return self.document != ({} if self.content is None else self._parse(self.content))

    def rendered(self) -> bytes:
        """Return the document as the file is written: with its indentation, key order and last line end.

        Raises:
            ConfigurationError: It is nested too deeply, or a number is too large.
        """
        before = (self.content or b"").decode()
        found = _INDENTED.search(before)
        is_flat = "\n" not in before.strip() and before.strip() not in ("", "{}")
        indent = found[1] if found else None if is_flat else "  "
        ending = "\n" if self.content is None or before.endswith("\n") else ""
        try:
            text = json.dumps(self.document, indent=indent, ensure_ascii=False, allow_nan=False)
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                text = json.dumps(self.document, indent=indent)  # with an escape for half a character
        except (RecursionError, ValueError) as exc:
            reason = "it is nested too deeply" if isinstance(exc, RecursionError) else "a number is too large"
            self._refuse(f"{reason}; correct it", exc)
        return (text + ending).encode()

    def write(self, content: bytes | None) -> None:
        """Replace the file in one step, or remove it.

        Raises:
            OSError: It could not be written, and is as it was.
        """
        name = self.path.name
        if content is None:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)
            return
        draft = f".{name}.{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(draft, _CREATE, self._mode, dir_fd=self._folder), "wb") as file:
                if self.content is not None:
                    os.fchmod(file.fileno(), self._mode)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self._folder)
            raise

    def _read(self) -> bytes | None:
        try:
            descriptor = os.open(self.path.name, _READ, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        except OSError as exc:
            reason = (
                "it is a symbolic link" if exc.errno == errno.ELOOP else f"it cannot be read: {exc.strerror}"
            )
            self._refuse(f"{reason}; replace it by a regular file of your own", exc)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            os.close(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self._refuse("it is not a regular file; replace it by one")
            self._refuse(f"it belongs to user {status.st_uid}; run this command as that user")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        self._mode = stat.S_IMODE(status.st_mode) & 0o777
        if len(content) > LIMIT_BYTES:
            self._refuse(f"it is larger than {LIMIT_BYTES} bytes; shorten it")
        return content

    def _parse(self, content: bytes) -> dict[str, Any]:
        try:
            document = STRICT_DECODER.decode(content.decode())
        except json.JSONDecodeError as exc:
            raise ConfigurationError(
                f"it is not JSON: {exc.msg}; correct it", file=self.path, line=exc.lineno, column=exc.colno
            ) from exc
        except (ValueError, RecursionError) as exc:
            reason = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
            self._refuse(f"it is not JSON: {reason}; correct it", exc)
        if not isinstance(document, dict):
            self._refuse("it holds no JSON object; correct it")
        return document

    def _refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise ConfigurationError(problem, file=self.path) from cause
