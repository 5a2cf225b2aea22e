"""The layout of records on disk: the directory of each run, and the files in it.

The record of a run is its journal, the blobs in `blobs`, and every regular file beside them. The directories that the
run worked in (its clone, its git directory) are not part of the record.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from ringfence.config.paths import state_dir
from ringfence.errors import UsageError

JOURNAL_NAME = "journal.jsonl"
LOCK_NAME = "lock"
RESERVE_NAME = "reserve"
BLOBS_NAME = "blobs"
WORK_NAME = "work.json"
WORK_DIRECTORIES = frozenset({"git", "git-fixed", "submodules", "undone-git", "work"})
"""Directories in which the run worked, and repositories that an undo moved out of the workspace."""
LATER_NAMES = frozenset({"applied", "rejected", "stories.json", "undone"})
"""Files that are written after the seal: a drafted plan, and the markers of applied, undone and rejected changes."""

PARTIAL_NAME = re.compile(r"\.[0-9a-f]{16}\.new")
"""A file that `replace_file` was writing when its process died."""

_RUN_ID = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{8}")
_CHUNK_BYTES = 1024**2


def new_run_id(now: datetime | None = None) -> str:
    """Return an id for a new run: its time in UTC and eight hexadecimal digits.

    Later ids sort after earlier ones. The first three digits are the fraction of the second, in 4096ths; the
    other five are random.
    """
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    fraction = moment.microsecond * 4096 // 1_000_000
    return f"{moment:%Y-%m-%dT%H-%M-%S}-{fraction:03x}{secrets.token_hex(3)[1:]}"


def runs_dir() -> Path:
    """Return the directory of all runs."""
    return state_dir() / "runs"


def run_dirs() -> list[Path]:
    """Return the directories of all runs, the newest first."""
    if not runs_dir().is_dir():
        return []
    return sorted((path for path in runs_dir().iterdir() if _RUN_ID.fullmatch(path.name)), reverse=True)


def run_dir(run_id: str) -> Path:
    """Return the directory of a run, which need not exist.

    Raises:
        UsageError: `run_id` is not a run id.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise UsageError(f"{run_id!r} is not a run id; `ringfence runs ls` lists the runs")
    return runs_dir() / run_id


def journal_path(path: Path) -> Path:
    """Return the journal in a run's directory, or the path itself if it is not a directory."""
    return path / JOURNAL_NAME if path.is_dir() else path


def session_name(run_id: str) -> str:
    """Return the name of a run's session file."""
    return f"{run_id}.json"


def digests(run_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a record except its journal and its blobs, by name.

    The work record of a run that died is omitted: a later command completes it.

    Raises:
        OSError: A file cannot be read.
    """
    return {
        name: digest_of_file(run_dir / name)
        for name in sorted(regular_files(run_dir))
        if not PARTIAL_NAME.fullmatch(name) and (name != WORK_NAME or _is_complete(run_dir / name))
    }


def regular_files(run_dir: Path) -> Iterator[str]:
    """Yield the names of the files of a record except its journal and its blobs."""
    excluded = (JOURNAL_NAME, LOCK_NAME, RESERVE_NAME)
    for entry in os.scandir(run_dir):
        if entry.name not in excluded and entry.is_file(follow_symlinks=False):
            yield entry.name


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe in its place would block the reader forever.

    Raises:
        OSError: The file cannot be read, or it is a link, a pipe or a device.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(fd, "rb")


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a regular file.

    Raises:
        OSError: The file cannot be read, or it is a link, a pipe or a device.
    """
    digest = sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _is_complete(work: Path) -> bool:
    try:
        return msgspec.json.decode(work.read_bytes(), type=dict[str, object]).get("after") is not None
    except msgspec.MsgspecError:
        return False
