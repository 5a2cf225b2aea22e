"""Trees as mappings, and what an attempt made of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from ringfence.check.freeze import Item, freeze, tampering, with_scripts
from ringfence.check.freeze.model import REGULAR, Guard, Tampering

Tree = Mapping[str, "bytes | Item"]


@dataclass(frozen=True)
class Change:
    """A path that differs."""

    path: str


def items(tree: Tree) -> dict[str, Item]:
    """Each file as an entry of a tree."""
    return {path: it if isinstance(it, Item) else Item(it, REGULAR) for path, it in tree.items()}


def attempt(
    before: Tree, after: Mapping[str, "bytes | Item | None"], guard: Guard | None = None
) -> list[Tampering]:
    """Judge an attempt: `after` has what it wrote; None is deleted."""
    was = items(before)
    guard = with_scripts(was, guard or Guard())
    now = {**was, **items({path: it for path, it in after.items() if it is not None})}
    for path, it in after.items():
        if it is None:
            del now[path]
    changes = [Change(path) for path in sorted({*was, *now}) if was.get(path) != now.get(path)]
    return tampering(changes, before=was.get, after=now.get, frozen=freeze(was, guard), guard=guard)


def rules(found: list[Tampering]) -> set[str]:
    """Which rules were broken."""
    return {each.rule for each in found}
