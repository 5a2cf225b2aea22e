"""What the test writer may write: tests and their data, nothing else."""

from collections.abc import Sequence
from typing import TypeVar

from ringfence.check.freeze.model import Changed, Guard, Item, Read
from ringfence.check.freeze.parts import part_of
from ringfence.check.freeze.places import is_plain_path
from ringfence.frozen import frozen

_Change = TypeVar("_Change", bound=Changed)


@frozen
class Dropped:
    """A change of the test writer's that is not taken."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path!r} {self.why}"


def only_tests(
    changes: Sequence[_Change], *, after: Read, guard: Guard | None = None
) -> tuple[list[_Change], list[Dropped]]:
    """The changes that are taken over, and the others with the reason.

    Args:
        changes: All that the test writer's turn changed.
        after: Reads what it left.
        guard: What runs the checks.
    """
    guard = guard or Guard()
    kept: list[_Change] = []
    dropped: list[Dropped] = []
    for change in changes:
        if why := _why_not(change.path, after, guard):
            dropped.append(Dropped(change.path, why))
        else:
            kept.append(change)
    return kept, dropped


def _why_not(path: str, after: Read, guard: Guard) -> str | None:
    if not is_plain_path(path):
        return "is no path that a project can have"
    if not guard.is_test(path):
        return "is no test and no data of one"
    item = after(path)
    if item is None:
        return None
    if not item.is_file:
        return "is no regular file"
    return _why_not_config(path, item, guard)


def _why_not_config(path: str, item: Item, guard: Guard) -> str | None:
    """Fixtures of pytest are part of its tests where these are; elsewhere they would change other tests."""
    part = part_of(path, item.data, guard)
    if part is None or part.kind == "test":
        return None
    is_below_tests = guard.is_test(path.rpartition("/")[0] + "/data")
    if path.endswith("/conftest.py") and is_below_tests:
        return None
    return "says how tests run"
