"""Reads the diffs of a loop, a story or a rejected attempt, as a patch, as statistics, or as lines for a report."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.report.model import DiffSummary, FileDiff, Hunk
from ringfence.loop.repository import LoopRepository, RepositoryRemoved
from ringfence.loop.rows import REJECTED_BY_PERSON, StepRow, StoryRow
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore
from ringfence.sandbox.workspace.git.command import GitBoundReached
from ringfence.sandbox.workspace.snapshot.diff import Diff
from ringfence.sandbox.workspace.snapshot.patch import LineClassifier, LineKind, hunk_start, path_of

PATCH = "loop.patch"
"""The file with all of a loop's work, in the loop's directory."""
MAX_FILES = 200
MAX_LINES = 2_000
"""Limit of lines shown of one diff."""
MAX_REPORT_LINES = 20_000
"""Limit of lines for all diffs of a report together."""
_MAX_LINE_CHARS = 400
_READ_BYTES = 8 * 1024**2
"""Limit for the part of a patch that a report reads."""
_TOO_LARGE = "is larger than 256 MiB; look at it with git in the loop's branch"
_OPTIONS = ("-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
_NOTES = {b"new file mode 100644": "added", b"new file mode 100755": "added, executable"}
_KINDS = {
    b"120000": "symbolic link",
    b"160000": "submodule",
    b"100755": "executable",
    b"100644": "not executable",
}


async def loop_patch(directory: LoopDirectory, store: LoopStore) -> bytes:
    """The patch of all work on the loop's branch; empty if there is none.

    Raises:
        UsageError: It is too large for a patch.
        RepositoryRemoved: The loop's repository was removed, and no patch was written before.
    """
    row, kept = store.loop, directory.path / PATCH
    try:
        repository = LoopRepository.open(directory.repository_dir)
    except (RecordError, RepositoryRemoved):
        if not kept.is_file():
            raise
        return await anyio.to_thread.run_sync(kept.read_bytes)
    patch = await repository.patch(row.base, await repository.tip())
    if patch is None:
        raise UsageError(f"the patch of loop {row.id} {_TOO_LARGE}")
    return patch


async def story_patch(directory: LoopDirectory, store: LoopStore, story: str) -> bytes:
    """The patch of a story that passed, as it is on the loop's branch.

    Raises:
        UsageError: There is no such story, nothing of it is on the branch, or it is too large for a patch.
        RepositoryRemoved: The loop's repository was removed.
    """
    row = store.story(story)
    if row.state is not StoryState.PASSED or row.merged_commit is None:
        tried = [step.attempt for step in _rejected(store, story)]
        hint = f"; --rejected {tried[-1]} prints its attempt {tried[-1]}" if tried else ""
        raise UsageError(f"story {story[:80]!r} is {row.state.value}: nothing of it is on the branch{hint}")
    repository = LoopRepository.open(directory.repository_dir)
    if row.base is None or row.code_commit is None:
        raise UsageError(f"the record of story {story[:80]!r} does not name its commits")
    patch = await repository.patch(
        await repository.before_story(row.merged_commit, row.base, row.code_commit), row.merged_commit
    )
    if patch is None:
        raise UsageError(f"the patch of story {story[:80]!r} {_TOO_LARGE}")
    return patch


async def rejected_patch(store: LoopStore, story: str, attempt: int) -> bytes:
    """The patch of an attempt at a story's code that was rejected.

    Raises:
        UsageError: There is no such story, no such attempt of it, or its patch was removed with the working files.
    """
    store.story(story)
    known = _rejected(store, story)
    found = next((step for step in reversed(known) if step.attempt == attempt), None)
    if found is None:
        tried = ", ".join(dict.fromkeys(str(step.attempt) for step in known)) or "none"
        raise UsageError(
            f"no attempt {attempt} of story {story[:80]!r} was rejected with work to show (there are: {tried})"
        )
    file = Path(str(found.result["patch"]))
    try:
        return await anyio.to_thread.run_sync(file.read_bytes)
    except FileNotFoundError as exc:
        raise UsageError(
            f"{str(file)!r} is gone: `ringfence loop rm` removes rejected work with the loop's repository"
        ) from exc


def _rejected(store: LoopStore, story: str) -> list[StepRow]:
    """Rejected attempts at a story's code that have a patch, in order; also those that a person rejected."""
    steps = [
        step
        for step in store.steps(story)
        if step.name.startswith("rejected.implementor.") or step.name == REJECTED_BY_PERSON
    ]
    with_work = [step for step in steps if step.result.get("patch")]
    return sorted(with_work, key=lambda step: (step.generation, step.attempt))


async def read_diff(repository: LoopRepository, base: str, commit: str) -> Diff | None:
    """The files that differ between two commits; None if the loop's repository no longer has them."""
    with suppress(RingfenceError):
        return await repository.diff(base, commit)
    return None


def numbers_of(diff: Diff) -> DiffSummary:
    """The statistics of a difference, without its lines."""
    files = tuple(
        FileDiff(each.path, each.insertions, each.deletions, each.binary, is_truncated=not each.binary)
        for each in diff.files[:MAX_FILES]
    )
    return DiffSummary(files, len(diff.files), diff.insertions, diff.deletions)


async def read_story(repository: LoopRepository, row: StoryRow, reader: "PatchReader") -> DiffSummary | None:
    """The diff of a story that is on the loop's branch; only its statistics if it is too large."""
    if row.merged_commit is None or row.base is None or row.code_commit is None:
        return None
    with suppress(RingfenceError):
        commits = (
            await repository.before_story(row.merged_commit, row.base, row.code_commit),
            row.merged_commit,
        )
        try:
            command = ("diff-tree", *_OPTIONS, *commits)
            answer = await repository.git.run(*command, output_limit_bytes=_READ_BYTES)
            return await anyio.to_thread.run_sync(reader.read, answer.stdout)
        except GitBoundReached:
            return numbers_of(await repository.diff(*commits))
    return None


async def read_rejected(file: str, reader: "PatchReader") -> DiffSummary | None:
    """The diff of a rejected attempt's patch; None if the file is gone."""

    def read() -> DiffSummary:
        with Path(file).open("rb") as stream:
            patch = stream.read(_READ_BYTES + 1)
        return reader.read(patch[:_READ_BYTES], is_truncated=len(patch) > _READ_BYTES)

    try:
        return await anyio.to_thread.run_sync(read)
    except OSError:
        return None


class PatchReader:
    """Reads the patches of one report within a limit of lines, which the first patches use up first.

    Args:
        max_lines: Limit for all diffs of the report together.
    """

    def __init__(self, max_lines: int = MAX_REPORT_LINES) -> None:
        self._room = max_lines

    def read(self, patch: bytes, *, is_truncated: bool = False) -> DiffSummary:
        """Read a patch that git wrote without detecting renames. Its files may have any contents.

        Args:
            patch: The patch.
            is_truncated: Whether it is the beginning of a longer one.
        """
        files, room = list[_File](), min(self._room, MAX_LINES)
        first_room, classifier = room, LineClassifier()
        for line in patch.split(b"\n"):
            kind = classifier.classify(line)
            if kind == "file":
                files.append(_File(path_of(line).decode("utf-8", "surrogateescape")))
            elif files and line:
                is_shown = room > 0 and len(files) <= MAX_FILES
                room -= is_shown and kind == "content"
                files[-1].add(kind, line, is_shown=is_shown)
        self._room -= first_room - room
        insertions, deletions = sum(file.insertions for file in files), sum(file.deletions for file in files)
        shown = tuple(file.stat() for file in files[:MAX_FILES])
        return DiffSummary(shown, len(files), insertions, deletions, is_truncated)


@dataclass
class _File:
    """The part of a patch about one file, while it is read."""

    path: str
    insertions: int = 0
    deletions: int = 0
    is_binary: bool = False
    note: str = ""
    is_truncated: bool = False
    hunks: list[tuple[tuple[int, int], list[str]]] = field(default_factory=list)
    """The numbers of each hunk's first line before and after the change, and its lines."""

    def add(self, kind: LineKind, line: bytes, *, is_shown: bool) -> None:
        """Add the next line; contents that are not shown are only counted."""
        start = hunk_start(line) if kind == "hunk" else None
        if start is not None:
            self.hunks.append((start, []))
        elif kind == "content" and self.hunks:
            self.insertions += line.startswith(b"+")
            self.deletions += line.startswith(b"-")
            self.is_truncated = self.is_truncated or not is_shown
            self.hunks[-1][1].extend([_read_line(line)] if is_shown else [])
        else:
            self.note = _read_note(line) or self.note
            self.is_binary |= line == b"GIT binary patch" or line.startswith(b"Binary files ")

    def stat(self) -> FileDiff:
        """Return what the report shows of the file."""
        hunks = tuple(Hunk(*start, tuple(lines)) for start, lines in self.hunks if lines)
        return FileDiff(
            self.path, self.insertions, self.deletions, self.is_binary, self.note, hunks, self.is_truncated
        )


def _read_note(line: bytes) -> str:
    if line.startswith(b"deleted file mode "):
        return "deleted"
    if line.startswith((b"new file mode ", b"new mode ")):
        kind = _KINDS.get(line[-6:], "")
        return _NOTES.get(line) or (f"added, {kind}" if line.startswith(b"new file") else f"now {kind}")
    return ""


def _read_line(line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}..."
