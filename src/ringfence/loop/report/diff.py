"""Reads the diffs of a loop, a story or a rejected attempt, as a patch, as statistics, or as lines for a report."""

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import anyio.to_thread

from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.frozen import frozen
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.report.model import FileStat, Hunk, Stat
from ringfence.loop.repository import LoopRepository, RepositoryRemoved
from ringfence.loop.rows import REJECTED_BY_PERSON, StepRow, StoryRow
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore
from ringfence.sandbox.workspace.git.command import GitBoundReached
from ringfence.sandbox.workspace.snapshot.diff import Diff

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
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_LETTERS = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
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


def numbers_of(diff: Diff) -> Stat:
    """The statistics of a difference, without its lines."""
    files = tuple(
        FileStat(each.path, each.insertions, each.deletions, each.binary, is_cut=not each.binary)
        for each in diff.files[:MAX_FILES]
    )
    return Stat(files, len(diff.files), diff.insertions, diff.deletions)


async def read_story(repository: LoopRepository, row: StoryRow, reader: "PatchReader") -> Stat | None:
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


async def read_rejected(file: str, reader: "PatchReader") -> Stat | None:
    """The diff of a rejected attempt's patch; None if the file is gone."""

    def read() -> Stat:
        with Path(file).open("rb") as stream:
            patch = stream.read(_READ_BYTES + 1)
        return reader.read(patch[:_READ_BYTES], is_partial=len(patch) > _READ_BYTES)

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

    def read(self, patch: bytes, *, is_partial: bool = False) -> Stat:
        """Read a patch that git wrote without detecting renames. Its files may have any contents.

        Args:
            patch: The patch.
            is_partial: Whether it is the beginning of a longer one.
        """
        lines, room = patch.split(b"\n"), min(self._room, MAX_LINES)
        starts = [*_find_files(lines), len(lines)]
        files = list[FileStat]()
        for start, end in pairwise(starts):
            file = _read_file(lines[start:end], room if len(files) < MAX_FILES else 0)
            used = sum(len(hunk.lines) for hunk in file.hunks)
            room, self._room = room - used, self._room - used
            files.append(file)
        insertions, deletions = sum(file.insertions for file in files), sum(file.deletions for file in files)
        return Stat(tuple(files[:MAX_FILES]), len(files), insertions, deletions, is_partial)


@frozen
class _Span:
    """The position of a hunk's lines in the patch."""

    before: int
    after: int
    start: int
    end: int


def _find_files(lines: Sequence[bytes]) -> list[int]:
    """Find the first line of each file. Hunks are skipped, so a line of a file's contents is never taken for one."""
    found, position = list[int](), 0
    while position < len(lines):
        if lines[position].startswith(b"diff --git "):
            found.append(position)
        span = _span_at(lines, position)
        position = span.end if span is not None else position + 1
    return found


def _span_at(lines: Sequence[bytes], position: int) -> _Span | None:
    heading = _HUNK.match(lines[position])
    if heading is None:
        return None
    before, after = (int(heading[group] or 1) for group in (2, 4))
    end = position + 1
    while end < len(lines) and (before > 0 or after > 0 or lines[end].startswith(b"\\")):
        sign = lines[end][:1]
        before, after = before - (sign in b" -"), after - (sign in b" +")
        end += 1
    return _Span(int(heading[1]), int(heading[3]), position + 1, end)


def _read_file(lines: Sequence[bytes], room: int) -> FileStat:
    hunks, note, is_binary, is_cut = list[Hunk](), "", False, False
    insertions, deletions, position = 0, 0, 1
    while position < len(lines):
        line, span = lines[position], _span_at(lines, position)
        if span is None:
            note = _read_note(line) or note
            is_binary = is_binary or line == b"GIT binary patch" or line.startswith(b"Binary files ")
            position += 1
            continue
        texts = [each for each in lines[span.start : span.end] if each]
        insertions += sum(each.startswith(b"+") for each in texts)
        deletions += sum(each.startswith(b"-") for each in texts)
        shown = tuple(map(_read_line, texts[:room]))
        if shown:
            hunks.append(Hunk(span.before, span.after, shown))
        is_cut, room, position = is_cut or len(shown) < len(texts), room - len(shown), span.end
    return FileStat(_read_path(lines[0]), insertions, deletions, is_binary, note, tuple(hunks), is_cut)


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


def _read_path(heading: bytes) -> str:
    """The path in `diff --git a/PATH b/PATH`: without renames both halves have the same path."""
    both = heading.removeprefix(b"diff --git ")
    half = both[len(both) // 2 + 1 :]
    if half.startswith(b'"'):
        half = _ESCAPE.sub(lambda match: _unescape(match[1]), half[1:-1])
    return half.removeprefix(b"b/").decode("utf-8", "surrogateescape")


def _unescape(code: bytes) -> bytes:
    return bytes([_LETTERS[code[0]] if len(code) == 1 else int(code, 8)])
