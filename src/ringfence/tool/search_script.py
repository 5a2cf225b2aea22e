"""Finds files and text. This script is run *inside* the sandbox, by its python3 (3.9 or later).

It imports nothing of ringfence and never runs on the host. Its input is a JSON object on stdin; its output is lines of
text on stdout, ordered by name.
"""
# It prints because that is its interface; pathlib is slow on large trees.
# ruff: noqa: T201, PTH110, PTH112, PTH113, PTH116, PTH118, PTH123, SIM115

import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Optional

SKIPPED = frozenset(
    [
        *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
    ]
)
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_LINE_CHARS = 300


def glob_to_regex(pattern: str) -> "re.Pattern[str]":
    """Translate a glob to a regular expression for relative paths.

    `*` and `?` match within one path component, `**` matches any number of components. A pattern without a slash
    is matched against the last component only, at any depth.
    """
    if "/" not in pattern:
        pattern = "**/" + pattern
    out, at = "", 0
    while at < len(pattern):
        piece, at = _piece(pattern, at)
        out += piece
    return re.compile(out + r"\Z", re.DOTALL)


def _piece(pattern: str, at: int) -> "tuple[str, int]":
    """Return the regular expression for the piece that begins at `at`, and where the next piece begins."""
    for glob, regex in (("**/", "(?:[^/]+/)*"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]")):
        if pattern.startswith(glob, at):
            return regex, at + len(glob)
    end = pattern.find("]", at + 2) if pattern[at] == "[" else -1
    if end < 0:
        return re.escape(pattern[at]), at + 1
    inner = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
    negated = inner[0] in "!^" and len(inner) > 1
    return (f"[^/{inner[1:]}]" if negated else f"[{inner}]"), end + 1


def files_under(root: str) -> "Iterator[str]":
    """Yield the relative paths of the files below `root`, sorted; links to directories are not followed."""
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        inner = os.path.relpath(directory, root)
        for name in sorted(files):
            yield name if inner == "." else os.path.join(inner, name)


def list_files(root: str, glob: str, limit: int) -> None:
    """Print up to `limit` files that match, and how many more match."""
    wanted = glob_to_regex(glob)
    found = 0
    for path in files_under(root):
        if wanted.match(path):
            found += 1
            if found <= limit:
                print(path)
    if found > limit:
        print(f"[... {found - limit} more files; narrow the pattern ...]")
    if not found:
        print("[no file matches]")


def text_lines(path: str) -> "Optional[list[str]]":  # noqa: UP045 - Python 3.9
    """Return the lines of a text file; None for anything else (a pipe would block, binary data would flood)."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "replace").split("\n")


def candidates(root: str, glob: str) -> "Iterator[tuple[str, str]]":
    """Yield the files to search: the path to print, and the path to open."""
    if os.path.isfile(root):
        yield root, root
        return
    named = glob_to_regex(glob)
    for path in files_under(root):
        if named.match(path):
            yield path, os.path.join(root, path)


def search(files: "Iterable[tuple[str, str]]", wanted: "re.Pattern[str]", limit: int) -> None:
    """Print `path:line:text` for up to `limit` lines that match, and how many more match."""
    found = skipped = 0
    for shown, path in files:
        lines = text_lines(path)
        if lines is None:
            skipped += 1
            continue
        for number, line in enumerate(lines, 1):
            if wanted.search(line):
                found += 1
                if found <= limit:
                    print(f"{shown}:{number}:{line[:MAX_LINE_CHARS]}".rstrip("\r"))
    if found > limit:
        print(f"[... {found - limit} more matches; narrow the search ...]")
    if not found:
        print("[no line matches]")
    if skipped:
        print(f"[{skipped} files not searched: binary, unreadable or larger than 5 MiB]")


def main() -> None:
    """Carry out the query on stdin; exit with 1 and one line on stderr if it is invalid."""
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    query = json.load(sys.stdin)
    root, glob, limit = query["path"], query["glob"], query["limit"]
    if not os.path.exists(root):
        sys.exit(f"there is no {root!r} in the sandbox")
    if query["do"] == "list" and not os.path.isdir(root):
        sys.exit(f"{root!r} is not a directory; read it with read_file")
    try:
        if query["do"] == "list":
            list_files(root, glob, limit)
        else:
            wanted = re.compile(query["regex"], re.IGNORECASE if query["ignore_case"] else 0)
            search(candidates(root, glob), wanted, limit)
    except re.error as error:
        sys.exit(f"{error.pattern!r} is not a pattern ({error}); escape special characters")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
