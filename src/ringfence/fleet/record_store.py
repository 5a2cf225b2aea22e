"""Stores copies of run records where every machine of a fleet can read them: in a directory or an object store.

A record is one object, `RUN_ID.tar.gz`, written after the run's seal. Its files come from another machine: they are
unpacked as hostile data, and `ringfence runs verify` decides whether they can be trusted.
"""

import gzip
import io
import os
import secrets
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ringfence.config.units import format_duration
from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.fleet.config.model import RecordSettings
from ringfence.fleet.record_cache import CacheLimits, RecordCache
from ringfence.journal import run_dir
from ringfence.journal.layout import BLOBS_NAME, JOURNAL_NAME, LOCK_NAME, RESERVE_NAME, WORK_DIRECTORIES

MAX_RECORD_BYTES = 8 * 1024**3
"""Size limit of an unpacked record."""
MAX_RECORD_FILES = 200_000
_MAX_HEADER_BYTES = 128 * 1024
"""Size limit of what stands in an archive between two files; tarfile reads it into memory."""
_EXCLUDED_NAMES = WORK_DIRECTORIES | {LOCK_NAME, RESERVE_NAME}
_CHUNK_BYTES = 1024**2
READ_LIMIT_S = 120.0
TRANSFER_LIMIT_S = 3600.0
"""Upper bounds of a call: file systems of fsspec have limits of their own, or none."""
_MAX_THREADS = 8
_threads: RunVar[anyio.CapacityLimiter] = RunVar("record_store_threads")
_locks: RunVar[WeakValueDictionary[str, anyio.Lock]] = RunVar("record_store_locks")
"""A lock for each run whose record is being fetched."""
_Result = TypeVar("_Result")


class RecordStore:
    """The record store of a fleet, through fsspec. All methods block; `call_store` calls them from asynchronous code.

    Args:
        url: A directory (`file:///srv/records`, or a path), or another address that fsspec knows, such as
            `s3://BUCKET/PREFIX`. Credentials come from the environment, as the file system's package reads them.
        cache: The directory for unpacked records on this machine.
        cache_limits: The limits of these records.

    Raises:
        UsageError: fsspec does not know the address, or needs a package for it that is not installed.
    """

    def __init__(self, url: str, cache: Path, *, cache_limits: CacheLimits = CacheLimits()) -> None:  # noqa: B008 -- frozen
        import fsspec

        self._cache = RecordCache(cache, cache_limits)
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as exc:
            raise UsageError(
                f"the record store {_without_user(url)!r} cannot be used: {exc}; write a directory, or install the "
                "package of its file system; for s3://: pip install 'ringfence[s3]'"
            ) from exc

    def upload(self, run_id: str) -> None:
        """Store the record of an ended run of this machine, and replace an earlier copy.

        Raises:
            InfrastructureFault: The record cannot be read or stored.
        """
        directory = run_dir(run_id)
        with self._translated_errors(f"the record of run {run_id!r} cannot be stored"):
            self._files.makedirs(self._root, exist_ok=True)
            partial = f"{self._path(run_id)}.{secrets.token_hex(8)}.part"
            try:
                with (
                    self._files.open(partial, "wb") as file,
                    gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0) as packed,
                    tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
                ):
                    for path in _files_of(directory):
                        archive.add(
                            path, arcname=str(path.relative_to(directory)), recursive=False, filter=_plain
                        )
                self._files.mv(partial, self._path(run_id))
            except BaseException:
                with suppress(Exception):
                    self._files.rm(partial)
                raise

    def fetch(self, run_id: str) -> Path | None:
        """Return the directory of a stored record, unpacked on this machine; None if the store does not have it.

        Raises:
            InfrastructureFault: The store cannot be reached, or the disk is full.
            RecordError: The stored object is not the archive of a record.
        """
        run_dir(run_id)  # raises for an invalid run id
        found = self._cache.find(run_id)
        if found is not None:
            return found
        with self._translated_errors(f"the record of run {run_id!r} cannot be fetched"):
            if not self._files.exists(self._path(run_id)):
                return None
            return self._cache.add(run_id, lambda into: self._fetch_into(into, run_id))

    def _fetch_into(self, directory: Path, run_id: str) -> None:
        with self._files.open(self._path(run_id), "rb") as file:
            _unpack(file, directory, run_id, check_room=self._cache.check_room)

    def remove(self, run_ids: Sequence[str]) -> None:
        """Remove stored records, and their unpacked copies on this machine. Missing records are skipped.

        Raises:
            InfrastructureFault: The store cannot be reached.
        """
        with self._translated_errors("records cannot be removed"):
            for run_id in run_ids:
                run_dir(run_id)
                with suppress(FileNotFoundError):
                    self._files.rm(self._path(run_id))
                self._cache.remove(run_id)

    def _path(self, run_id: str) -> str:
        return f"{self._root.rstrip('/')}/{run_id}.tar.gz"

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (RecordError, UsageError, InfrastructureFault):
            raise
        except Exception as exc:  # file systems of fsspec raise exceptions of their own libraries
            cause = getattr(exc, "strerror", None) or f"{type(exc).__name__}: {exc}"
            raise InfrastructureFault(
                f"{what}: {str(cause)[:300]}; check `fleet.records` and that this machine may use it"
            ) from exc


async def fetch_record(store: RecordStore, run_id: str) -> Path | None:
    """Return the directory of a stored record, as `RecordStore.fetch`; concurrent calls for a run fetch it once.

    Raises:
        InfrastructureFault: The store has not answered in time, or as `RecordStore.fetch`.
        RecordError: As `RecordStore.fetch`.
    """
    try:
        locks = _locks.get()
    except LookupError:
        locks = WeakValueDictionary()
        _locks.set(locks)
    lock = locks.setdefault(run_id, anyio.Lock())
    try:
        with anyio.fail_after(READ_LIMIT_S):
            await lock.acquire()
    except TimeoutError as exc:
        raise InfrastructureFault(
            f"the record of run {run_id!r} is being fetched for another request; try again later"
        ) from exc
    try:
        return await call_store(partial(store.fetch, run_id), limit_s=READ_LIMIT_S)
    finally:
        lock.release()


async def call_store(act: Callable[[], _Result], *, limit_s: float) -> _Result:
    """Call a method of a record store in a thread.

    A call that exceeds its limit is abandoned with its thread. After eight of those every further call fails, so that a
    store that hangs takes no more threads.

    Args:
        act: The call.
        limit_s: Its maximum duration in seconds, the wait for a thread included.

    Raises:
        InfrastructureFault: The limit is exceeded, or the call raises it.
        RecordError, UsageError: The call raises it.
    """
    try:
        limiter = _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_THREADS)
        _threads.set(limiter)
    try:
        with anyio.fail_after(limit_s):
            return await anyio.to_thread.run_sync(act, abandon_on_cancel=True, limiter=limiter)
    except TimeoutError as exc:
        raise InfrastructureFault(
            f"the record store has not answered within {format_duration(limit_s)}; check `fleet.records` and the network"
        ) from exc


def open_record_store(settings: RecordSettings | None, state: Path) -> RecordStore | None:
    """Return the record store that a fleet's file names; None if it names none.

    Raises:
        UsageError: As `RecordStore`.
    """
    return None if settings is None else RecordStore(settings.url, state / "fleet" / "records")


def _files_of(directory: Path) -> Iterator[Path]:
    """Yield the files of a record, its journal first."""
    yield directory / JOURNAL_NAME
    for folder, names, files in os.walk(directory):
        if Path(folder) == directory:
            names[:] = sorted(name for name in names if name == BLOBS_NAME)
        for name in sorted(files):
            path = Path(folder) / name
            is_journal = path == directory / JOURNAL_NAME
            if not is_journal and name not in _EXCLUDED_NAMES and path.is_file() and not path.is_symlink():
                yield path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return the entry of a regular file without its owner; other entries do not belong to a record."""
    if not member.isreg():
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


class _LimitedReader(io.BufferedIOBase):
    """Reads from a stream as many bytes as were allowed.

    Args:
        stream: The stream.
        run_id: The run, for the error.
    """

    def __init__(self, stream: gzip.GzipFile, run_id: str) -> None:
        self._stream, self._run_id = stream, run_id
        self._left = _MAX_HEADER_BYTES

    def allow(self, size: int) -> None:
        """Allow to read this many bytes from now on, and no more of those that were allowed before."""
        self._left = size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes.

        Raises:
            RecordError: More than the allowed number were read.
        """
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise RecordError(f"the stored record of run {self._run_id!r} has a header that no record has")
        return data


def _unpack(file: IO[bytes], into: Path, run_id: str, *, check_room: Callable[[int], None]) -> None:
    """Unpack an archive into an empty directory: only regular files, with plain names, within limits.

    Raises:
        RecordError: The archive contains anything else.
        InfrastructureFault: `check_room` raises it, which is called with the size of each file.
    """
    size = count = 0
    try:
        with (
            gzip.GzipFile(fileobj=file) as unpacked,
            tarfile.open(fileobj=(limited := _LimitedReader(unpacked, run_id)), mode="r|") as archive,
        ):
            for member in archive:
                size, count = size + member.size, count + 1
                if (
                    not member.isreg()
                    or not _is_plain(member.name)
                    or member.sparse is not None
                    or archive.pax_headers
                ):
                    raise RecordError(
                        f"the stored record of run {run_id!r} has an entry that no record has: {member.name[:200]!r}"
                    )
                if size > MAX_RECORD_BYTES or count > MAX_RECORD_FILES:
                    bounds = f"{MAX_RECORD_BYTES} bytes or {MAX_RECORD_FILES} files"
                    raise RecordError(f"the stored record of run {run_id!r} exceeds {bounds}")
                check_room(member.size)
                limited.allow(member.size + _MAX_HEADER_BYTES)
                _write(archive.extractfile(member), into / member.name)
                limited.allow(_MAX_HEADER_BYTES)
                member.pax_headers = {}  # the archive keeps all members
            if (
                len(unpacked.read(_CHUNK_BYTES)) == _CHUNK_BYTES
            ):  # reading to the end also verifies the checksum
                raise RecordError(f"the stored record of run {run_id!r} does not end where its files end")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as exc:
        raise RecordError(f"the stored record of run {run_id!r} cannot be unpacked: {exc}") from exc
    if not (into / JOURNAL_NAME).is_file():
        raise RecordError(f"the stored record of run {run_id!r} has no journal")


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        not path.is_absolute()
        and str(path) == name
        and 1 <= len(path.parts) <= 4
        and not any(part in ("..", "") or "\0" in part for part in path.parts)
        and path.parts[0] not in _EXCLUDED_NAMES
    )


def _write(source: IO[bytes] | None, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while source is not None and (chunk := source.read(_CHUNK_BYTES)):
            file.write(chunk)


def _without_user(url: str) -> str:
    """Return an address for messages, without its user and password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else url
