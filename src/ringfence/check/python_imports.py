"""The modules that Python files import, read from their syntax."""

import ast
from collections.abc import Iterable

_LARGEST = 1 << 20


def imported_modules(sources: Iterable[bytes]) -> frozenset[str]:
    """The first parts of the names of all modules that some files import. A file that cannot be read imports none."""
    return frozenset(name.partition(".")[0] for data in sources for name in _imported(data))


def _imported(data: bytes) -> Iterable[str]:
    if len(data) > _LARGEST:
        return
    try:
        nodes = list(ast.walk(ast.parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module
