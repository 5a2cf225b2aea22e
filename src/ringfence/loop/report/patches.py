"""Differences between a loop's commits: the patches of a loop, a story or a rejected attempt, and their numbers."""

from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.loop.place import LoopPlace
from ringfence.loop.report.diff import MAX_FILES, PatchReader
from ringfence.loop.report.model import FileStat, Stat
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import StepRow, StoryRow
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore
from ringfence.sandbox.workspace.git.command import GitBoundReached
from ringfence.sandbox.workspace.snapshot.diff import Diff, compare_trees, parse_diff

PATCH = "loop.patch"
_TOO_LARGE = "is larger than 256 MiB; look at it with git in the loop's branch"
_LISTING_BYTES = 64 * 1024**2
_READ_BYTES = 8 * 1024**2
"""Of a patch that a report reads."""
_OPTIONS = ("-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")


async def loop_patch(place: LoopPlace, store: LoopStore) -> bytes:
    """All that is on the loop's branch; empty: nothing.

    Raises:
        UsageError: It is too large for a patch.
        RecordError: The loop's repository was removed, and no patch was written before.
    """
    row, kept = store.loop, place.directory / PATCH
    try:
        repository = LoopRepository.open(place.clones)
    except RecordError:
        if not kept.is_file():
            raise
        return await anyio.to_thread.run_sync(kept.read_bytes)
    patch = await repository.patch(row.base, await repository.tip())
    if patch is None:
        raise UsageError(f"the patch of loop {row.id} {_TOO_LARGE}")
    return patch


async def story_patch(place: LoopPlace, store: LoopStore, story: str) -> bytes:
    """What a story that passed has on the loop's branch.

    Raises:
        UsageError: There is no such story, or nothing of it is on the branch.
        RecordError: The loop's repository was removed.
    """
    row = store.story(story)
    if row.state is not StoryState.PASSED or row.merged is None:
        tried = [step.attempt for step in await _rejected(store, story)]
        hint = f"; --rejected {tried[-1]} prints its attempt {tried[-1]}" if tried else ""
        raise UsageError(f"story {story[:80]!r} is {row.state.value}: nothing of it is on the branch{hint}")
    repository = LoopRepository.open(place.clones)
    span = await _span_of(repository, row)
    patch = None if span is None else await repository.patch(*span)
    if patch is None:
        raise UsageError(f"the patch of story {story[:80]!r} {_TOO_LARGE}")
    return patch


async def rejected_patch(store: LoopStore, story: str, attempt: int) -> bytes:
    """The work of an attempt at a story's code that was rejected.

    Raises:
        UsageError: There is no such story, or no such attempt of it.
        RecordError: The patch was removed with the loop's clones.
    """
    store.story(story)
    known = await _rejected(store, story)
    found = next((step for step in reversed(known) if step.attempt == attempt), None)
    if found is None:
        tried = ", ".join(str(step.attempt) for step in known) or "none"
        raise UsageError(
            f"no attempt {attempt} of story {story[:80]!r} was rejected with work to show (there are: {tried})"
        )
    file = Path(str(found.result["patch"]))
    try:
        return await anyio.to_thread.run_sync(file.read_bytes)
    except FileNotFoundError as exc:
        raise RecordError(
            f"{str(file)!r} is gone: `ringfence loop rm` removes rejected work with the loop's clones"
        ) from exc


async def _rejected(store: LoopStore, story: str) -> list[StepRow]:
    """Rejected attempts at its code of which there is a patch, in order."""
    steps = [step for step in store.steps(story) if step.name.startswith("rejected.implementor.")]
    with_work = [step for step in steps if step.result.get("patch")]
    return sorted(with_work, key=lambda step: (step.generation, step.attempt))


async def compare_commits(repository: LoopRepository, base: str, commit: str) -> Diff | None:
    """The files that differ between two commits; None where the loop's repository does not have them any more."""
    with suppress(RingfenceError):
        return parse_diff(
            await compare_trees(repository.git, base, commit, output_limit_bytes=_LISTING_BYTES)
        )
    return None


def stat_of(diff: Diff) -> Stat:
    """The numbers of a difference, without its lines."""
    files = tuple(
        FileStat(each.path, each.insertions, each.deletions, each.binary, is_cut=not each.binary)
        for each in diff.files[:MAX_FILES]
    )
    return Stat(files, len(diff.files), diff.insertions, diff.deletions)


async def read_story(repository: LoopRepository, row: StoryRow, reader: PatchReader) -> Stat | None:
    """The diff of a story that is on the loop's branch; its numbers alone where it is too large."""
    with suppress(RingfenceError):
        span = await _span_of(repository, row)
        if span is None:
            return None
        try:
            command = ("diff-tree", *_OPTIONS, *span)
            answer = await repository.git.run(*command, output_limit_bytes=_READ_BYTES)
            return await anyio.to_thread.run_sync(reader.read, answer.stdout)
        except GitBoundReached:
            diff = await compare_commits(repository, *span)
            return None if diff is None else stat_of(diff)
    return None


async def read_rejected(file: str, reader: PatchReader) -> Stat | None:
    """The diff of a rejected attempt's patch; None if the file is gone."""

    def read() -> Stat:
        with Path(file).open("rb") as stream:
            patch = stream.read(_READ_BYTES + 1)
        return reader.read(patch[:_READ_BYTES], is_partial=len(patch) > _READ_BYTES)

    try:
        return await anyio.to_thread.run_sync(read)
    except OSError:
        return None


async def _span_of(repository: LoopRepository, row: StoryRow) -> tuple[str, str] | None:
    """A story's own part of the loop's branch: the commit before it and its last, perhaps replayed."""
    if row.base is None or row.tip is None or row.merged is None:
        return None
    if row.merged == row.tip:
        return row.base, row.tip
    with suppress(RingfenceError):
        count = await repository.git.run("rev-list", "--count", f"{row.base}..{row.tip}")
        parent = f"{row.merged}~{int(count.stdout)}"
        before = await repository.git.run("rev-parse", "--verify", "--quiet", parent)
        return before.stdout.decode().strip(), row.merged
    return None
