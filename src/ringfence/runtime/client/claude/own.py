"""What of a person's own `claude` may be shown inside, when asked for: how to work, never who they are.

A closed list. Credentials, history, sessions, hooks, servers and variables are not on it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FOLDERS = ("agents", "commands", "skills", "output-styles", "rules")
_SETTINGS = frozenset({
    "alwaysThinkingEnabled", "attribution", "autoCompactEnabled", "cleanupPeriodDays", "editorMode", "effortLevel",
    "includeCoAuthoredBy", "language", "model", "outputStyle", "permissions", "spinnerTipsEnabled", "theme", "verbose",
})  # fmt: skip
_MOST_FILES = 300
_FILE_BYTES = 256 * 1024
_ALL_BYTES = 4 * 1024**2


def own_files(home: Path) -> dict[str, bytes]:
    """Copies of what may be shown, by their paths below the client's directory; what is too large is left out.

    Args:
        home: The person's own directory of the client, on the host.
    """
    found: dict[str, bytes] = {}
    room = _ALL_BYTES
    for path in _candidates(home):
        try:
            data = path.read_bytes() if path.stat().st_size <= _FILE_BYTES else b""
        except OSError:
            continue
        if path.name == "settings.json" and path.parent == home:
            data = _harmless(data)
        room -= len(data)
        if data and room >= 0 and len(found) < _MOST_FILES:
            found[str(path.relative_to(home))] = data
    return found


def _candidates(home: Path) -> Iterator[Path]:
    yield home / "CLAUDE.md"
    yield home / "settings.json"
    for folder in _FOLDERS:
        for path in sorted((home / folder).rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(home).parts):
                yield path


def _harmless(data: bytes) -> bytes:
    """Of the settings those that are a matter of taste, and what may be done without being asked."""
    try:
        read: Any = json.loads(data)
    except ValueError:
        return b""
    if not isinstance(read, dict):
        return b""
    return json.dumps({key: value for key, value in read.items() if key in _SETTINGS}).encode()
