"""Prepares text for a model: reads text files, numbers lines, shortens long text, and repairs invalid Unicode."""

import json
from typing import Any

import msgspec

from ringfence.sandbox import Sandbox

FILE_LIMIT_BYTES = 10 * 1024**2
_SNIFFED_BYTES = 8192
_MARKER_ROOM = 64
_LINE_CHARS = 2000


def cut_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """Shorten `text` to about `limit_chars` characters.

    Args:
        text: The text to shorten.
        limit_chars: The limit for head and tail together; the marker between them is added to that.
        total_bytes: The original size, if `text` is itself the rest of a longer text.

    Returns:
        `text` itself if it is short enough, else its head, a line such as `[... 1234 bytes cut ...]`, and its tail.
    """
    if len(text) <= limit_chars:
        return text
    tail_length = limit_chars // 2
    head = text[: limit_chars - tail_length]
    tail = text[len(text) - tail_length :]
    original_bytes = _size(text) if total_bytes is None else total_bytes
    return f"{head}\n[... {max(original_bytes - _size(head) - _size(tail), 1)} bytes cut ...]\n{tail}"


def cut_json_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """Shorten `text` so that its encoding as a JSON string stays near `limit_chars`.

    A control character takes six characters in JSON.
    """
    allowed = limit_chars
    cut = cut_text(text, allowed, total_bytes=total_bytes)
    while allowed > 1 and len(json.dumps(cut, ensure_ascii=False)) > limit_chars + _MARKER_ROOM:
        allowed //= 2
        cut = cut_text(text, allowed, total_bytes=total_bytes)
    return cut


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class NotText(Exception):
    """The file is not UTF-8 text. The text of the error is meant for the agent."""


async def read_text(sandbox: Sandbox, path: str) -> str:
    """Read the text file `path`; line ends are kept as they are.

    Raises:
        NotText: The file is binary or not encoded in UTF-8.
        SandboxFileError: The file does not exist, is a directory, may not be read, or is larger than 10 MiB.
    """
    data = await sandbox.read_file(path, limit_bytes=FILE_LIMIT_BYTES)
    if b"\0" in data[:_SNIFFED_BYTES]:
        raise NotText(
            f"{path!r} is binary ({len(data)} bytes); look at it with shell, for example: file, xxd, strings"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotText(
            f"{path!r} is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start} of "
            f"{len(data)}); work on it with shell, for example: iconv, xxd"
        ) from error


def split_lines(text: str) -> list[str]:
    r"""Split `text` into lines without their ends. Only `\n` ends a line, as in every tool that prints line numbers."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def numbered(lines: list[str], first: int) -> str:
    """Number lines as `cat -n` does; long lines are cut and marked."""
    return "\n".join(f"{number:6}\t{_short(line)}" for number, line in enumerate(lines, first))


def _short(line: str) -> str:
    line = line.removesuffix("\r")
    more = len(line) - _LINE_CHARS
    return line if more <= 0 else f"{line[:_LINE_CHARS]}[... {more} characters cut ...]"


def is_unicode(value: Any) -> bool:
    """Whether the JSON value `value` is free of unpaired surrogates.

    JSON can express them, but no file, command or journal can hold them.
    """
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(value: Any) -> Any:
    """Return the JSON value `value` with each unpaired surrogate replaced by the replacement character."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list) else value
