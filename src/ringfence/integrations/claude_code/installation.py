"""Writes the entries into a project's `.mcp.json` and into both files of settings in `.claude`, and removes them again.

Both, since claude ignores a file with one value that it finds invalid as a whole, in `claude -p` without a word: a
mistake in the project's shared settings would give it its own tools back.

A record in the state directory holds which of the entries the project had before; `remove` leaves those. Without that
record, as on another machine, `remove` takes every entry that `install` adds.

All files are written or none: each is prepared before the first is replaced, and what was replaced is restored if the
next one fails. If ringfence is killed in between, `install` and `remove` still complete the work.
"""

import copy
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from ringfence.config.paths import replace_state_file, state_dir
from ringfence.errors import ConfigurationError, InfrastructureFault, next_step
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.integrations.claude_code import entries
from ringfence.integrations.claude_code.entries import Conflict, Entry
from ringfence.integrations.claude_code.json_file import JsonFile

SERVERS_NAME: Final = ".mcp.json"
SETTINGS_NAME: Final = ".claude/settings.json"
_SETTINGS_NAMES: Final = (SETTINGS_NAME, ".claude/settings.local.json")
_FOLDER = ".claude"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RECORD_LIMIT_BYTES = 4 * 1024 * 1024


@frozen
class Change:
    """What `install` or `remove` did to a project."""

    written: tuple[Path, ...]
    removed: tuple[Path, ...]
    kept: tuple[str, ...]
    """Entries that were not removed, since they were changed after they had been added."""
    other_settings: dict[Path, tuple[str, ...]]
    """Keys besides ours in the settings of the project, which claude obeys: hooks, for example."""


class _Record(msgspec.Struct):
    """The files and entries that a project had before `install` added the others."""

    names: set[str] = msgspec.field(default_factory=set)
    """Files and directories, by their name in the project."""
    entries: dict[str, list[Entry]] = msgspec.field(default_factory=dict)
    """By the name of the file."""
    is_installed: bool = True
    """Whether the rest is there: false after its removal. What came back with a commit is removed all the same."""


def install(project: Path, command: Sequence[str], *, replace: bool = False) -> Change:
    """Configure claude in a project to have the tools of `ringfence mcp` only.

    Args:
        project: The directory in which claude is started.
        command: The command that starts the server, of which claude knows nothing else.
        replace: Whether another server of the same name is replaced.

    Raises:
        ConfigurationError: A file cannot be read, is somebody else's, or has something else in an entry's place.
        InfrastructureFault: A file cannot be written, or another process does the same; nothing was changed.
    """
    with _Project(project, create=True) as held:
        other_settings = held.other_settings()
        servers = held.files[SERVERS_NAME]
        is_installed = entries.has_own_server(servers.document)
        added = {}
        for name in _SETTINGS_NAMES:
            with _located(held.files[name]):
                added[name] = entries.add_settings(held.files[name].document)
        with _located(servers):
            added[SERVERS_NAME] = entries.add_server(servers.document, command, replace=replace)
        contents = {name: file.rendered() for name, file in held.files.items() if file.has_changed()}
        with nullcontext() if is_installed else held.recorded(added):
            return held.commit(contents, other_settings=other_settings)


def remove(project: Path) -> Change:
    """Remove what `install` added to a project. What was changed since is kept; to do it twice changes nothing more.

    Raises:
        ConfigurationError: A file cannot be read, or is somebody else's.
        InfrastructureFault: A file cannot be written, or another process does the same; nothing was changed.
    """
    with _Project(project, create=False) as held:
        record = held.read_record() or _Record()
        contents: dict[str, bytes | None] = {}
        kept: list[str] = []
        for name, file in held.files.items():
            ours = entries.exclude(_every_entry()[name], record.entries.get(name, []))
            kept += [f"{'.'.join(path)} in {name}" for path in entries.remove_entries(file.document, ours)]
            if file.has_changed():
                is_empty = not file.document and name not in record.names
                contents[name] = None if is_empty else file.rendered()
        change = held.commit(contents, kept=kept)
        if change.removed and _FOLDER not in record.names:
            held.remove_folder()
        if record.entries:
            record.is_installed = False
            held.write_record(record)
        else:
            held.remove_record()
        return change


def _every_entry() -> dict[str, list[Entry]]:
    """Return all that is added to a project without either file."""
    return {
        **{name: entries.add_settings({}) for name in _SETTINGS_NAMES},
        SERVERS_NAME: entries.add_server({}, ("ringfence", "mcp")),
    }


class _Project:
    """A project's directory, held by a lock while its files are read and replaced."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path.resolve()
        self.names = {_FOLDER}
        self.files: dict[str, JsonFile] = {}
        self._create = create
        self._folder: int | None = None
        self._resources = ExitStack()
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()
        self._record_file = state_dir() / "claude-code" / f"{name}.json"

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self._root = resources.enter_context(_opened(self.path, None))
            if not try_lock(self._root, fcntl.LOCK_EX, what=repr(str(self.path))):
                raise InfrastructureFault(
                    f"another process is configuring {str(self.path)!r}; try again when it has ended"
                )
            self._folder = self._open_folder(resources)
            if self._folder is not None:
                for name in _SETTINGS_NAMES:
                    self.files[name] = JsonFile(self._folder, self.path / name)
            self.files[SERVERS_NAME] = JsonFile(self._root, self.path / SERVERS_NAME)
            self.names |= {name for name, file in self.files.items() if file.content is not None}
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._resources.close()

    def _open_folder(self, resources: ExitStack) -> int | None:
        path = self.path / _FOLDER
        try:
            os.mkdir(_FOLDER, dir_fd=self._root) if self._create else os.lstat(_FOLDER, dir_fd=self._root)
        except FileExistsError:
            pass
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _write_failure(path, exc) from exc
        else:
            if self._create:
                self.names.discard(_FOLDER)
                resources.callback(self.remove_folder)  # which has no effect once a file is in it
        return resources.enter_context(_opened(path, self._root))

    def commit(
        self,
        contents: Mapping[str, bytes | None],
        *,
        kept: Sequence[str] = (),
        other_settings: dict[Path, tuple[str, ...]] | None = None,
    ) -> Change:
        """Write all files, or none; None removes a file."""
        changed = {name: content for name, content in contents.items() if content != self.files[name].content}
        done: list[JsonFile] = []
        for name, content in changed.items():
            file = self.files[name]
            try:
                file.write(content)
            except OSError as exc:
                for each in reversed(done):
                    with suppress(OSError):
                        each.write(each.content)
                raise _write_failure(file.path, exc) from exc
            done.append(file)
        return Change(
            written=tuple(self.path / name for name, content in changed.items() if content is not None),
            removed=tuple(self.path / name for name, content in changed.items() if content is None),
            kept=tuple(kept),
            other_settings=other_settings or {},
        )

    def remove_folder(self) -> None:
        """Remove `.claude` if it is empty."""
        with suppress(OSError):
            os.rmdir(_FOLDER, dir_fd=self._root)

    def read_record(self) -> _Record | None:
        try:
            with self._record_file.open("rb") as file:
                return msgspec.json.decode(file.read(_RECORD_LIMIT_BYTES), type=_Record)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            raise ConfigurationError(
                "the record of what the project had is damaged; remove it", file=self._record_file
            ) from exc

    @contextmanager
    def recorded(self, added: Mapping[str, list[Entry]]) -> Iterator[None]:
        """Record what the project has already, unless it is recorded; restore the record if the body fails."""
        before = self.read_record()
        if before is not None and before.is_installed:
            yield
            return
        found = {name: entries.exclude(every, added[name]) for name, every in _every_entry().items()}
        record = _Record(self.names, {name: each for name, each in found.items() if each})
        self.write_record(record)
        try:
            yield
        except BaseException:
            self.remove_record() if before is None else self.write_record(before)
            raise

    def write_record(self, record: _Record) -> None:
        replace_state_file(self._record_file, msgspec.json.encode(record))

    def remove_record(self) -> None:
        self._record_file.unlink(missing_ok=True)

    def other_settings(self) -> dict[Path, tuple[str, ...]]:
        """Return the keys of the settings before anything is added, without permissions and our own."""
        found = {}
        for name in _SETTINGS_NAMES:
            document = copy.deepcopy(self.files[name].document)
            entries.remove_entries(document, _every_entry()[name])
            keys = tuple(key for key in document if key != "permissions")
            if keys:
                found[self.path / name] = keys
        return found


@contextmanager
def _located(file: JsonFile) -> Iterator[None]:
    """Name the file in which something is in the place of an entry."""
    try:
        yield
    except Conflict as exc:
        raise ConfigurationError(str(exc), file=file.path) from exc


@contextmanager
def _opened(path: Path, parent: int | None) -> Iterator[int]:
    """Open a directory of the caller's own, and no link."""
    try:
        descriptor = os.open(path if parent is None else path.name, _DIRECTORY, dir_fd=parent)
    except OSError as exc:
        reason = "it is a link or no directory" if exc.errno in (errno.ELOOP, errno.ENOTDIR) else exc.strerror
        raise ConfigurationError(
            f"it cannot be opened: {reason}; replace it by a directory of your own", file=path
        ) from exc
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid():
            raise ConfigurationError(f"it belongs to user {owner}; run this command as that user", file=path)
        yield descriptor
    finally:
        os.close(descriptor)


def _write_failure(path: Path, exc: OSError) -> InfrastructureFault:
    return InfrastructureFault(f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc)}")
