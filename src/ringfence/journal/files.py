"""The files of a record beside its journal: their digests are in the journal, so its seal covers them.

These are the session, the patch, the work record and the bundles of commits. What a run worked in (its clone, its git
directory) is no part of the record.
"""

import os
import re
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from ringfence.errors import RecordError

_WORK = "work.json"
_NAME = re.compile(r"work\.json|work\.patch|commits[-%.\w]*\.bundle")
_CHUNK_BYTES = 1024**2


def digests(run_dir: Path, session: bytes | None = None) -> dict[str, str]:
    """The SHA-256 of each file of the record in `run_dir`, by name.

    The work record of a run that never ended in order is left out: it is completed when somebody looks at the work.

    Args:
        run_dir: The run's directory.
        session: What the session file will hold; None: there will be none.

    Raises:
        OSError: A file cannot be read.
    """
    names = sorted(path.name for path in run_dir.iterdir() if _NAME.fullmatch(path.name))
    found = {name: _digest(run_dir / name) for name in names if name != _WORK or _is_complete(run_dir / name)}
    if session is not None:
        found[session_name(run_dir)] = sha256(session).hexdigest()
    return found


def session_name(run_dir: Path) -> str:
    """The name of the session file of a run."""
    return f"{run_dir.name}.json"


def check(run_dir: Path, expected: Mapping[str, str]) -> None:
    """Compare the files of a record with their digests.

    The session file may be absent: it can be written anew from the journal, as after a run on a full disk.

    Raises:
        RecordError: One is absent, was edited, or is none that a record has.
    """
    session = session_name(run_dir)
    for name, digest in expected.items():
        if not (_NAME.fullmatch(name) or name == session):
            raise RecordError(f"the journal lists {name!r}, which is not a file that a record has")
        try:
            found = _digest(run_dir / name)
        except FileNotFoundError as exc:
            if name == session:
                continue
            raise RecordError(f"{str(run_dir / name)!r} is missing; the journal lists it") from exc
        except OSError as exc:
            raise RecordError(f"the file {name!r} of the record cannot be read: {exc.strerror}") from exc
        if found != digest:
            raise RecordError(
                f"{str(run_dir / name)!r} does not match its SHA-256 in the journal: it was changed after "
                "the record was sealed"
            )


def _digest(path: Path) -> str:
    total = sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is no regular file")
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()


def _is_complete(work: Path) -> bool:
    try:
        return msgspec.json.decode(work.read_bytes(), type=dict[str, object]).get("after") is not None
    except msgspec.MsgspecError:
        return False
