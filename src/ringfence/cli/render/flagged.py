"""Changed files that run, or are trusted, on the user's machine: told in a few lines, however many there are.

An agent can make thousands of them, to bury one. So each reason why a file is flagged has its turn before
another gets a second line.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ringfence.cli.plural import counted

if TYPE_CHECKING:
    from ringfence.sandbox.workspace.record import WorkRecord

WARNING = "RUNS ON YOUR MACHINE, or is protected; look before you use it"
_LINES = 20


def warnings(paths: Sequence[str], run_id: str) -> list[str]:
    """A line for each flagged path; where there are many, one for each directory, and not for all of those."""
    if len(paths) <= _LINES:
        return [f"{WARNING}: {path}" for path in paths]
    groups = _in_turn(_by_directory(paths))
    shown = [f"{WARNING}: {name}" for name, _ in groups[:_LINES]]
    hidden = sum(count for _, count in groups[_LINES:])
    if hidden:
        shown.append(f"{WARNING}: {counted(hidden, 'more file')} in {len(groups) - _LINES:,} more places")
    return [*shown, f"all {len(paths):,}, each with its reason: ringfence diff {run_id[-8:]} --flagged"]


def listing(paths: Iterable[str], record: "WorkRecord") -> Iterator[str]:
    """Every flagged path with its reason."""
    from ringfence.sandbox.workspace.protect.flags import matches_any, reason

    paths = list(paths)
    protected = frozenset(matches_any(paths, record.protect))
    refs: dict[str, str] = {file.path: file.ref for file in record.committed}
    for path in paths:
        where = f" (in the commits of {refs[path]})" if path in refs else ""
        yield f"{path}: {'sandbox.protect names it' if path in protected else reason(path)}{where}"


def _by_directory(paths: Iterable[str]) -> list[tuple[str, str, int]]:
    """Reason, what to show and how many files, for each reason and directory that has some."""
    from ringfence.sandbox.workspace.protect.flags import reason

    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for path in paths:
        key = (reason(path), path.rpartition("/")[0])
        first.setdefault(key, path)
        counts[key] += 1
    return [
        (key[0], path if counts[key] == 1 else f"{key[1] or '.'}/ ({counts[key]:,} files)", counts[key])
        for key, path in first.items()
    ]


def _in_turn(groups: Iterable[tuple[str, str, int]]) -> list[tuple[str, int]]:
    """The first of each reason, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for why, shown, count in groups:
        ranked.append((seen[why], shown, count))
        seen[why] += 1
    return [(shown, count) for _, shown, count in sorted(ranked, key=lambda each: each[0])]
