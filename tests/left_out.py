"""Files that are not even imported, as a run's marks leave all of their tests out: `-m "not slow and not docker"`."""

import re
from functools import cache
from pathlib import Path

_ONLY_NOT = re.compile(r"not \w+( and not \w+)*")
_OF_FILE = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)


def is_left_out(file: Path, expression: str) -> bool:
    """Whether an expression leaves out every test of a file."""
    left_out = _names(expression)
    if not left_out or file.suffix != ".py" or not file.name.startswith("test_"):
        return False
    from tests.tiers import any_user_reason_of_file

    if "any_user" in left_out and any_user_reason_of_file(file) is not None:
        return True
    marked = _OF_FILE.search(file.read_text())
    return marked is not None and not left_out.isdisjoint(re.findall(r"pytest\.mark\.(\w+)", marked[1]))


@cache
def _names(expression: str) -> frozenset[str]:
    return frozenset(re.findall(r"not (\w+)", expression) if _ONLY_NOT.fullmatch(expression) else ())
