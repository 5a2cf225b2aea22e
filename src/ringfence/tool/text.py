"""Text between a sandbox and a model: read from files, numbered, cut to a budget, repaired where it is no Unicode."""

import json
from typing import Any

import msgspec

from ringfence.sandbox import Sandbox

FILE_LIMIT_BYTES = 10 * 1024**2
_SNIFFED_BYTES = 8192
_MARKER_ROOM = 64


def cut_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """`text` in about `limit_chars` characters.

    Args:
        text: What is to be shown.
        limit_chars: Head and tail together are at most this long; the marker between them comes on top.
        total_bytes: How much there was, where `text` is itself what was left of something longer.

    Returns:
        `text` itself if it fits, else its head, a line such as `[... 1234 bytes cut ...]`, and its tail.
    """
    if len(text) <= limit_chars:
        return text
    tail_length = limit_chars // 2
    head = text[: limit_chars - tail_length]
    tail = text[len(text) - tail_length :]
    whole = _size(text) if total_bytes is None else total_bytes
    return f"{head}\n[... {max(whole - _size(head) - _size(tail), 1)} bytes cut ...]\n{tail}"


def cut_json_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """`text`, cut so that its spelling as a JSON string stays near `limit_chars`.

    A control byte takes six characters there.
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
    """The file is not UTF-8 text. Its text says so, for the agent."""


async def read_text(sandbox: Sandbox, path: str) -> str:
    """The text of `path`, line ends untouched.

    Raises:
        NotText: Binary, or another encoding than UTF-8.
        SandboxFileError: Absent, a directory, not permitted, larger than 10 MiB.
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
    r"""Lines without their ends. Only `\n` ends a line, as in every tool that prints line numbers."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def numbered(lines: list[str], first: int, *, line_chars: int = 2000) -> str:
    """Lines as `cat -n` prints them, long ones cut and marked."""
    return "\n".join(f"{number:6}\t{_short(line, line_chars)}" for number, line in enumerate(lines, first))


def _short(line: str, limit: int) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= limit else f"{line[:limit]}[... {len(line) - limit} characters cut ...]"


def is_unicode(value: Any) -> bool:
    """Whether `value`, made of what JSON has, holds no half of a surrogate pair.

    JSON can spell one, but no file, command or journal can hold it.
    """
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(value: Any) -> Any:
    """`value`, made of what JSON has, with the replacement character for each half of a surrogate pair."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list) else value
