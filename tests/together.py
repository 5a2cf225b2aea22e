"""Which tests run in one process, where several run at once: those of a module that share a fixture.

Such as a crew, or a loop that came to its end: each process would make one of its own.

Marks (`xdist_group`) would say the same, but xdist 3.8 writes them to where pytest 9.2 does not look.
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # xdist ships no types

_ROOT = Path(__file__).parents[1]
_SHARES = ("make_crew", 'scope="module"')
"""Words of a module whose tests share a fixture."""


class Together(LoadGroupScheduling):  # type: ignore[misc]  # of the same
    """Gives a module whose tests share a fixture to one process, and every other test to whoever has time."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if _shares(path) else str(super()._split_scope(nodeid))


@cache
def _shares(path: str) -> bool:
    file = _ROOT / path
    return file.is_file() and any(word in file.read_text() for word in _SHARES)
