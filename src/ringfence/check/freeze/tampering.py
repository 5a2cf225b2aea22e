"""Freezing tests, and finding what an attempt did to them.

Nothing here runs or opens anything: paths and contents come from inside a sandbox and are compared as data.
"""

from collections.abc import Iterator, Mapping, Sequence

from ringfence.check.freeze.model import (
    SYMLINK,
    Changed,
    Frozen,
    FrozenFile,
    Guard,
    Item,
    Kind,
    Read,
    Rule,
    Tampering,
    digest,
)
from ringfence.check.freeze.parts import Part, part_of
from ringfence.check.freeze.places import is_plain_path
from ringfence.check.freeze.reaching import reaches
from ringfence.check.freeze.shadowing import Names, shadows

_CHANGED: dict[Kind, Rule] = {
    "test": "test_changed",
    "runner_config": "runner_config",
    "check_config": "check_config",
}
_NEW: dict[Kind, Rule] = {
    "test": "new_test",
    "runner_config": "runner_config",
    "check_config": "check_config",
}
_SAYS: dict[Kind, str] = {
    "test": "holds tests",
    "runner_config": "says how tests run",
    "check_config": "says how strict a check is",
}


def freeze(files: Mapping[str, Item], guard: Guard | None = None) -> Frozen:
    """Remember what an implementor must leave as it is.

    Args:
        files: Of the tree with the story's tests: all files, or those for which `is_frozen` holds.
        guard: What runs the checks.
    """
    guard = guard or Guard()
    found: dict[str, FrozenFile] = {}
    for path, item in files.items():
        if part := part_of(path, item.data, guard):
            found[path] = FrozenFile(digest(part.data), item.mode, part.kind, part.is_whole)
    return Frozen(found)


def broken(frozen: Frozen, read: Read, guard: Guard | None = None) -> list[Tampering]:
    """Which frozen files are not as they were, whatever is said to have changed: for the tree that a gate is to run."""
    guard = guard or Guard()
    return [found for path in frozen.files for found in _frozen_changed(path, read(path), frozen, guard)]


def tampering(
    changes: Sequence[Changed], *, before: Read, after: Read, frozen: Frozen, guard: Guard | None = None
) -> list[Tampering]:
    """What an attempt did that it must not; empty: nothing that can be seen from outside.

    Args:
        changes: All paths that differ between the commit that was frozen and the candidate.
        before: Reads the commit that was frozen.
        after: Reads the candidate.
        frozen: What must be as it was.
        guard: What runs the checks, and what is allowed all the same.
    """
    guard = guard or Guard()
    known = Names(frozen)
    found = [
        each for change in changes for each in _of_path(change.path, before, after, frozen, guard, known)
    ]
    told = _with_new_names(found, changes, after, frozen)
    return [each for each in dict.fromkeys(told) if each.rule not in guard.allowed]


def _of_path(
    path: str, before: Read, after: Read, frozen: Frozen, guard: Guard, known: Names
) -> Iterator[Tampering]:
    if not is_plain_path(path):
        yield Tampering(path, "path", "is no path that a project can have")
        return
    item = after(path)
    if path in frozen:
        yield from _frozen_changed(path, item, frozen, guard)
        if item is not None and item.is_file and not frozen.files[path].is_whole:
            yield from _newly_reaching(path, item, before(path))
        return
    if item is None:
        return
    part = part_of(path, item.data, guard)
    if part:
        yield _new(path, item, part)
    if before(path) is None:
        yield from shadows(path, item, guard=guard, read=after, known=known)
    if item.is_file and not (part and part.is_whole):
        yield from _newly_reaching(path, item, before(path))


def _frozen_changed(path: str, item: Item | None, frozen: Frozen, guard: Guard) -> Iterator[Tampering]:
    was = frozen.files[path]
    if item is None:
        rule: Rule = "test_deleted" if was.kind == "test" else _CHANGED[was.kind]
        yield Tampering(path, rule, f"is deleted, but {_SAYS[was.kind]}")
        return
    if item.mode != was.mode and (was.is_whole or not item.is_file):
        yield Tampering(path, "test_replaced", f"was {_mode(was.mode)} and is {_mode(item.mode)}")
        return
    part = Part(was.kind, item.data) if was.is_whole else part_of(path, item.data, guard)
    if part is None or digest(part.data) != was.sha256:
        what = "is changed" if was.is_whole else "is changed in the part that"
        yield Tampering(
            path, _CHANGED[was.kind], f"{what}{', but' if was.is_whole else ''} {_SAYS[was.kind]}"
        )


def _mode(mode: int) -> str:
    kinds = {
        0o100644: "a file",
        0o100755: "an executable file",
        SYMLINK: "a symbolic link",
        0o160000: "a repository",
    }
    return kinds.get(mode, f"of mode {mode:o}")


def _new(path: str, item: Item, part: Part) -> Tampering:
    what = "is new and" if part.is_whole else "now has a part that"
    if part.kind == "test" and b"func TestMain(" in part.data:
        return Tampering(path, "new_test", f"{what} has a TestMain, which decides what go test reports")
    if not item.is_file:
        what = f"is {_mode(item.mode)} that"
    return Tampering(path, _NEW[part.kind], f"{what} {_SAYS[part.kind]}")


def _newly_reaching(path: str, item: Item, was: Item | None) -> Iterator[Tampering]:
    known = reaches(path, was.data) if was else set()
    for rule, what in sorted(reaches(path, item.data) - known):
        yield Tampering(path, rule, f"is no test, but {what}")


def _with_new_names(
    found: Sequence[Tampering], changes: Sequence[Changed], after: Read, frozen: Frozen
) -> Iterator[Tampering]:
    """Say of a deleted test where it went."""
    is_one_gone = any(each.rule == "test_deleted" for each in found)
    places = _places(changes, after, frozen) if is_one_gone else {}
    for each in found:
        to = places.get(frozen.files[each.path].sha256) if each.rule == "test_deleted" else None
        yield Tampering(each.path, each.rule, f"is renamed to {to!r}") if to is not None else each


def _places(changes: Sequence[Changed], after: Read, frozen: Frozen) -> dict[str, str]:
    """Where new files are, by their digests."""
    places: dict[str, str] = {}
    for change in changes:
        if change.path not in frozen and is_plain_path(change.path) and (item := after(change.path)):
            places.setdefault(digest(item.data), change.path)
    return places
