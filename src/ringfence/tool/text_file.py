"""Reading a file of the sandbox as text that an agent may work on; binary is refused readably."""

from ringfence.sandbox import Sandbox

FILE_LIMIT_BYTES = 10 * 1024**2
_SNIFFED_BYTES = 8192


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
