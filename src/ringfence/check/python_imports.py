"""The modules that Python files import, found by their import lines."""

import re
from collections.abc import Iterable

_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([^#;\n]+))", re.MULTILINE)
_NAME = re.compile(rb"[ \t]*(\w+)")


def imported_modules(sources: Iterable[bytes]) -> frozenset[str]:
    """The first parts of the names of all modules that some files import by a line of its own."""
    return frozenset(
        name[1].decode("utf-8", "replace")
        for data in sources
        for line in _IMPORT.finditer(data)
        for part in (line[1] or line[2]).split(b",")
        if (name := _NAME.match(part)) is not None
    )
