"""Records of the files that the user trusts, and of the runs that changed a project's file.

A record of trust is for one path with one content, and is stored outside of every workspace. A file is read once, so
that the bytes that are checked are those that are parsed. If a file causes an error, the message names the run that last
changed the file, so that the user can undo that run.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ringfence.config.document import PROJECT_FILE_NAME, find_project_file, read_regular_file
from ringfence.config.paths import make_private_dir, replace_state_file, state_dir
from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen

_RECORD_LIMIT_BYTES = 64 * 1024


@frozen
class TrustRecord:
    """A file with a content that the user trusts."""

    file: Path
    digest: str
    trusted_at: str
    """The time of the decision in RFC 3339 format, in UTC."""

    @property
    def holds(self) -> bool:
        """Whether the file still has this content."""
        try:
            with self.file.open("rb") as stream:
                return stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and (
                    hashlib.file_digest(stream, "sha256").hexdigest() == self.digest
                )
        except OSError:
            return False


def digest_of(content: bytes) -> str:
    """Return the SHA-256 that identifies a trusted content, also in messages to the user."""
    return hashlib.sha256(content).hexdigest()


def is_trusted(file: Path, content: bytes) -> bool:
    """Whether the user trusts this content at this path.

    Raises:
        ConfigurationError: The author of the file could have written the record of trust.
    """
    _refuse_state_beside(file)
    record = _record_file(file, digest_of(content))
    try:
        status = os.lstat(record)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise ConfigurationError(
            "others than you could have written this record of trust; remove it and trust the file again",
            file=record,
        )
    return True


def trust_content(file: Path, content: bytes) -> TrustRecord:
    """Record that the user trusts this content at this path.

    Raises:
        ConfigurationError: The file's author could write to the state directory.
    """
    _refuse_state_beside(file)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = TrustRecord(_real(file), digest_of(content), now)
    target = _record_file(file, record.digest)
    make_private_dir(target.parent)
    text = json.dumps({"file": str(record.file), "sha256": record.digest, "trusted_at": record.trusted_at})
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(descriptor)
    draft.rename(target)
    return record


def trusted_files() -> list[TrustRecord]:
    """Return every record of trust, sorted by file."""
    return sorted(
        (record for _, record in _records()), key=lambda record: (str(record.file), record.trusted_at)
    )


def revoke_trust(file: Path) -> int:
    """Remove every record of trust for `file`; return their number."""
    paths = [path for path, record in _records() if record.file == _real(file)]
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def _records() -> Iterator[tuple[Path, TrustRecord]]:
    for path in sorted(_store().glob("*.json")):
        try:
            with path.open("rb") as stream:
                fields = json.loads(stream.read(_RECORD_LIMIT_BYTES))
            record = TrustRecord(Path(fields["file"]), str(fields["sha256"]), str(fields["trusted_at"]))
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise ConfigurationError("this record of trust is damaged; remove it", file=path) from exc
        yield path, record


def _store() -> Path:
    return state_dir() / "trust"


def _record_file(file: Path, digest: str) -> Path:
    name = hashlib.sha256(os.fsencode(_real(file)) + b"\0" + digest.encode()).hexdigest()
    return _store() / f"{name}.json"


def _real(file: Path) -> Path:
    # The directory is resolved, but the file is not, because a link would be another file.
    return file.parent.resolve() / file.name


def _refuse_state_beside(file: Path) -> None:
    state, home = state_dir().resolve(), _real(file).parent
    if state.is_relative_to(home):
        raise ConfigurationError(
            f"the state directory {str(state)!r} is beside this file, where an agent could forge trust; "
            "set RINGFENCE_STATE_DIR to a directory elsewhere",
            file=file,
        )


PROJECT_FILE_NAMES = frozenset({PROJECT_FILE_NAME, "ringfence.yml"})
"""The name of a project's file, and a similar name that is refused."""
_RUN_LIMIT_BYTES = 200


def remember_author(file: Path, content: bytes, *, run: str, state: Path) -> None:
    """Record that `run` left `file` with this content.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    replace_state_file(_mark(file, content, state), run.encode())


def author_of(file: Path, state: Path) -> str | None:
    """Return the run that left `file` with its present content; None if there is none or it is unknown."""
    try:
        content = read_regular_file(file, follow_link=False)
        return _mark(file, content, state).read_bytes()[:_RUN_LIMIT_BYTES].decode()
    except (ConfigurationError, OSError, UnicodeDecodeError):
        return None


def _author_notice(file: Path, run: str) -> str:
    """Return the notice about a file that a run created or changed."""
    return f"run {run!r} created or changed {file.name!r}; `ringfence undo {run[-8:]}` reverts that"


def note_author(workspace: Path, state: Path) -> tuple[str, ...]:
    """Return a notice about a project file that a run left. It can only tighten, but may break the next run."""
    with suppress(ConfigurationError):
        file = find_project_file(workspace)
        run = author_of(file, state) if file is not None else None
        if file is not None and run is not None and not is_trusted(file, read_regular_file(file)):
            return (f"{_author_notice(file, run)}; it is not trusted, so it can only tighten this run",)
    return ()


def with_author(error: ConfigurationError, state: Path) -> ConfigurationError:
    """Return the error with the run that left the file with its present content, if there is one."""
    if error.file is None or error.file.name not in PROJECT_FILE_NAMES:
        return error
    run = author_of(error.file, state)
    if run is None:
        return error
    message = f"{error.message}; {_author_notice(error.file, run)}"
    return ConfigurationError(message, file=error.file, line=error.line, column=error.column)


def _mark(file: Path, content: bytes, state: Path) -> Path:
    real = os.fsencode(file.parent.resolve() / file.name)
    name = hashlib.sha256(real + b"\0" + hashlib.sha256(content).digest()).hexdigest()
    return state / "authors" / name
