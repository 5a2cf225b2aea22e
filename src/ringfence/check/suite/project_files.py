"""A project's files, by name and by what is in them: nothing of it is run."""

import json
import re
import tomllib
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

_MOST_READ = 1_000_000
_DEEPEST = 12
Read = Callable[[str], bytes | None]


class ProjectFiles:
    """Files by name and by what is in them.

    Args:
        files: Paths, relative to the root.
        read: The bytes of one, None where there is none.
    """

    def __init__(self, files: Collection[str], read: Read) -> None:
        self.files = sorted(
            file for file in files if file.count("/") < _DEEPEST and "node_modules/" not in file
        )
        self._top = {file for file in self.files if "/" not in file}
        self._read = read

    def has(self, *patterns: str) -> bool:
        """Whether a file matches: at the root, or anywhere for `**/` patterns."""
        return any(
            any(fnmatchcase(PurePosixPath(file).name, pattern[3:]) for file in self.files)
            if pattern.startswith("**/")
            else any(fnmatchcase(file, pattern) for file in self._top)
            for pattern in patterns
        )

    def named(self, *patterns: str) -> list[str]:
        """Files whose name matches."""
        return [
            file
            for file in self.files
            if any(fnmatchcase(PurePosixPath(file).name, each) for each in patterns)
        ]

    def text(self, path: str) -> str:
        """A file's text; empty where there is none, or it is too large."""
        data = self._read(path) or b""
        return data.decode("utf-8", "replace") if len(data) <= _MOST_READ else ""

    def toml(self, path: str) -> dict[str, Any]:
        """A TOML file's content; empty where it is none."""
        try:
            return tomllib.loads(self.text(path))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}

    def json(self, path: str) -> dict[str, Any]:
        """A JSON file's content; empty where it is no object."""
        try:
            found = json.loads(self.text(path) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def tool(self, name: str) -> bool:
        """Whether pyproject.toml configures a tool."""
        tools = self.toml("pyproject.toml").get("tool")
        return isinstance(tools, dict) and name in tools

    def section(self, name: str, *paths: str) -> bool:
        """Whether an ini file has a section."""
        return any(re.search(rf"^\[{re.escape(name)}[\]:]", self.text(path), re.MULTILINE) for path in paths)
