"""Selects the changes of a role's run to commit, so that an attempt cannot change the files that decide about it."""

import os
from collections.abc import Collection, Sequence

from ringfence.check.protected_files import Conventions, ProtectedFiles
from ringfence.check.protected_names import COMPANIONS, matches_any
from ringfence.check.source_code import becomes_binary, changed_inline_tests, reaches_tests
from ringfence.check.tree import is_cache, is_plain_path
from ringfence.config.paths import state_dir
from ringfence.frozen import frozen
from ringfence.journal import run_dir
from ringfence.loop.repository import Change, Tree, changes_between
from ringfence.loop.story import names_path
from ringfence.sandbox.workspace.record import has_record, load_record, open_store
from ringfence.sandbox.workspace.snapshot.diff import Diff

_FILES = (0o100644, 0o100755)
_DATA = frozenset({"fixtures", "__fixtures__", "data", "testdata", "resources"})
"""Directories of tests whose files are never configuration, whatever their names."""


@frozen
class Assembled:
    """The changes of an implementor that are committed, and those that are left out."""

    changes: tuple[Change, ...]
    """The changes to commit."""
    left_out: tuple[str, ...]
    """Changes of protected files that are not committed, each with the reason."""
    configuration: frozenset[bytes]
    """Paths of protected configuration among the changes to commit, which the story's `files` name."""
    complaints: tuple[str, ...]
    """Changes that cannot be left out: of tests in files of product code, and those that no diff shows."""


async def run_changes(run_id: str, diff: Diff | None) -> list[Change]:
    """Return the changes that a run made, except caches, relative to the directory that the loop works in.

    Args:
        run_id: The run.
        diff: What the run changed in files, if this process did the run.

    Raises:
        WorkRefused: They exceed the limits for a commit.
    """
    directory = run_dir(run_id)
    record = load_record(directory) if has_record(directory) else None
    if record is None or record.after is None:
        return []
    store = open_store(record, state_dir())
    changes = await changes_between(store, record.before, record.after, diff)
    return [change for change in changes if not is_cache(os.fsdecode(change.path))]


def only_tests(changes: Sequence[Change], conventions: Conventions) -> tuple[list[Change], list[str]]:
    """Return a test writer's changes of tests, and why each of its other changes is dropped."""
    kept, dropped = list[Change](), list[str]()
    for change in changes:
        path = os.fsdecode(change.path)
        why = _why_not_test(path, change, conventions)
        dropped += [f"{path!r} {why}"] if why else []
        kept += [] if why else [change]
    return kept, dropped


def assemble(
    before: Tree, protected: ProtectedFiles, changes: Sequence[Change], *, named: Collection[str]
) -> Assembled:
    """Leave out an implementor's changes of protected files.

    Args:
        before: The tree with the story's tests.
        protected: The tree's protected files.
        changes: All changes of the implementor's run.
        named: The story's `files`.
    """
    after = before.changed(changes)
    kept, left_out, configuration, complaints = list[Change](), list[str](), set[bytes](), list[str]()
    for change in changes:
        path = os.fsdecode(change.path)
        why = protected.protection_reason(path, after.read)
        is_unlocked = why is not None and protected.is_unlockable_by_story(path) and _is_named(named, path)
        if is_unlocked and not protected.is_of_story(path):
            configuration.add(change.path)
        if why is None or is_unlocked:
            kept.append(change)
            entry = before.read(path)
            if becomes_binary(path, entry.data if entry else b"", change.data):
                complaints.append(f"{path!r} contains a NUL character, so that no diff shows its lines")
            if protected.may_be_compiled_with_inline_tests:
                complaints += _inline_complaints(path, before, change)
        else:
            left_out.append(f"{path!r} {why}")
    return Assembled(tuple(kept), tuple(left_out), frozenset(configuration), tuple(complaints))


def _why_not_test(path: str, change: Change, conventions: Conventions) -> str | None:
    """Return why a test writer's change is dropped; None if it is a test, or data of tests."""
    if not is_plain_path(path):
        return "is not a valid project path"
    is_data = not _DATA.isdisjoint(path.split("/")[:-1])
    if matches_any(path, conventions.configuration) and not is_data and not path.endswith("conftest.py"):
        return "says how checks run"
    if not conventions.is_test(path):
        return "is no test and no data of one"
    if change.git_mode not in (None, *_FILES):
        return "is no regular file"
    if becomes_binary(path, b"", change.data):
        return "contains a NUL character, so that no diff shows its lines"
    if path.endswith("conftest.py") and not conventions.is_test(f"{path.rpartition('/')[0]}/data"):
        return "would change tests outside of the directories of tests"
    return None


def _is_named(named: Collection[str], path: str) -> bool:
    """Whether a story may change protected configuration: its `files` name it, or the file that it accompanies."""
    directory, _, name = path.rpartition("/")
    others = [
        f"{directory}/{main}".lstrip("/") for main, files in COMPANIONS.items() if matches_any(name, files)
    ]
    return any(names_path(named, each) for each in (path, *others))


def _inline_complaints(path: str, before: Tree, change: Change) -> list[str]:
    """Return complaints about changed tests in a file of product code.

    Rust has tests in such files, so that they cannot be restored without the code; their text is compared instead. A
    file with another ending may be included in one. The
    change contains the complete file, while a tree contains no large files.
    """
    entry = before.read(path)
    was, now = (_source(data) for data in (b"" if entry is None else entry.data, change.data))
    changed = (
        [f"{path!r}: tests in it were changed"]
        if path.endswith(".rs") and changed_inline_tests(was, now)
        else []
    )
    return [*changed, *(f"{path!r} {what}" for what in sorted(reaches_tests(now) - reaches_tests(was)))]


def _source(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
