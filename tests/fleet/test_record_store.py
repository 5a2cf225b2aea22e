"""Copies of records for other machines: complete, verifiable, and unpacked as hostile data."""

import io
import os
import shutil
import tarfile
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.journal.conftest import conversation

from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.fleet.queries.records import FoundRecord, show_record
from ringfence.fleet.record_cache import CacheLimits
from ringfence.fleet.record_store import RecordStore, call_store, fetch_record
from ringfence.journal import Journal, new_run_id, run_dir, verify_run

RUN = "2026-11-28T10-00-00-0123abcd"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordStore:
    """An empty store in a directory, for a machine with its own state directory."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "s"))
    return RecordStore(f"file://{tmp_path}/store", tmp_path / "cache")


@pytest.fixture
def run(store: RecordStore) -> str:
    """Write a sealed run of this machine, which has a directory for its work."""
    run_id = new_run_id()
    with Journal.create(run_dir(run_id), run_id) as journal:
        for event in conversation():
            journal.append(event)
        (run_dir(run_id) / "work.patch").write_bytes(b"a patch")
        journal.seal()
    (run_dir(run_id) / "git").mkdir()
    (run_dir(run_id) / "git" / "config").write_text("[core]")
    return run_id


def packed(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return an archive of entries: name, kind, and content or link target."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = os.fsdecode(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def put(tmp_path: Path, content: bytes) -> None:
    """Store an object as the record of `RUN`."""
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store" / f"{RUN}.tar.gz").write_bytes(content)


def test_a_record_comes_back_whole(store: RecordStore, run: str):
    """A fetched record verifies as sealed on another machine, with its patch, but without the run's work directory."""
    store.upload(run)
    store.upload(run)
    found = store.fetch(run)
    assert found is not None
    assert found == store.fetch(run)
    assert (found / "work.patch").read_bytes() == b"a patch"
    assert not (found / "git").exists()
    assert verify_run(found).status == verify_run(run_dir(run)).status


def test_a_removed_record_is_gone_everywhere(store: RecordStore, run: str):
    """A record is removed from the store and this machine's copies; removing a missing one is no error."""
    store.upload(run)
    assert store.fetch(run) is not None
    store.remove([run, RUN])
    assert store.fetch(run) is None


HOSTILE = {
    "a path up": ("../x", tarfile.REGTYPE, b""),
    "an absolute path": ("/tmp/x", tarfile.REGTYPE, b""),
    "a link": ("work.patch", tarfile.SYMTYPE, b"/etc/passwd"),
    "a hard link": ("work.patch", tarfile.LNKTYPE, b"/etc/passwd"),
    "a device": ("work.patch", tarfile.CHRTYPE, b""),
    "a pipe": ("work.patch", tarfile.FIFOTYPE, b""),
    "a repository": ("git/config", tarfile.REGTYPE, b"[core]"),
    "a name twice": ("journal.jsonl", tarfile.REGTYPE, b"again"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_no_record_holds_is_refused(case: str, store: RecordStore, tmp_path: Path):
    """An archive with entries that no record contains is refused, and nothing of it is kept."""
    put(tmp_path, packed(("journal.jsonl", tarfile.REGTYPE, b"{}"), HOSTILE[case]))
    with pytest.raises((RecordError, InfrastructureFault)):
        store.fetch(RUN)
    assert list((tmp_path / "cache").iterdir()) == []


NO_RECORD = {
    "nothing": b"",
    "no archive": b"no archive",
    "no files": packed(),
    "no journal": packed(("x", tarfile.REGTYPE, b"")),
    "cut": packed(("journal.jsonl", tarfile.REGTYPE, b"{}"))[:-9],
}


@pytest.mark.parametrize("case", NO_RECORD)
def test_what_is_no_record_is_refused(case: str, store: RecordStore, tmp_path: Path):
    """An object that is truncated, or is no archive with a journal, is refused."""
    content = NO_RECORD[case]
    put(tmp_path, content)
    with pytest.raises(RecordError):
        store.fetch(RUN)


def _sparse() -> bytes:
    """Return an archive whose file has a map of a million holes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        holes = b"1000000\n" + b"1\n" * 2_000_000
        member = tarfile.TarInfo("journal.jsonl")
        member.size = len(holes)
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
        archive.addfile(member, io.BytesIO(holes))
    return file.getvalue()


def _long_name(form: int) -> bytes:
    """Return an archive whose file has a name of 16 MiB."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=form) as archive:
        archive.addfile(tarfile.TarInfo("x" * 16 * 1024**2))
    return file.getvalue()


HEADERS: dict[str, Callable[[], bytes]] = {
    "a long name in the form of POSIX": partial(_long_name, tarfile.PAX_FORMAT),
    "a long name in the form of GNU": partial(_long_name, tarfile.GNU_FORMAT),
    "a map of holes": _sparse,
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_large_header_is_not_read_into_memory(case: str, store: RecordStore, tmp_path: Path):
    """An archive with a header that no record needs is refused before the header is read as a whole."""
    put(tmp_path, HEADERS[case]())
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            store.fetch(RUN)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024**2


@given(st.binary(max_size=300), st.integers(0, 250))
@settings(max_examples=examples(50), deadline=None)
def test_damage_is_an_error_of_the_record(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int):
    """Any bytes in place of an archive are a record, or raise `RecordError`."""
    root = tmp_path_factory.mktemp("store")
    whole = packed(("journal.jsonl", tarfile.REGTYPE, b"{}" * 100))
    put(root, whole[:at] + noise + whole[at + len(noise) :])
    try:
        found = RecordStore(f"file://{root}/store", root / "cache").fetch(RUN)
    except RecordError:
        return
    assert found is not None


def test_an_address_that_nothing_serves(tmp_path: Path):
    """An unreachable store is named without its user and password."""
    with pytest.raises(UsageError, match="'nothing://host/x' cannot be used") as raised:
        RecordStore("nothing://user:hidden@host/x", tmp_path)
    assert "hidden" not in str(raised.value)


def test_a_store_that_cannot_be_written(tmp_path: Path, run: str):
    """The error of a store that cannot be written names the run and the setting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureFault, match=rf"{run}.*check `fleet.records`"):
        RecordStore(f"file://{tmp_path}/file/below", tmp_path / "cache").upload(run)


class _HangingFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system whose requests are not answered before an event."""

    protocol = "hanging"
    answered = threading.Event()

    def exists(self, *_arguments: object, **_options: object) -> bool:
        return self.answered.wait() and False


@pytest.mark.anyio
async def test_a_store_that_hangs_is_an_infrastructure_fault(tmp_path: Path):
    """Every call ends at its limit, also once as many calls hang as may have threads."""
    fsspec.register_implementation("hanging", _HangingFiles, clobber=True)
    store = RecordStore(f"hanging://{tmp_path}/store", tmp_path / "cache")
    try:
        for _ in range(10):
            with pytest.raises(InfrastructureFault, match="has not answered within"):
                await call_store(partial(store.fetch, RUN), limit_s=0.05)
    finally:
        _HangingFiles.answered.set()


@pytest.mark.parametrize(
    "limits", [CacheLimits(records=2), CacheLimits(size_bytes=10_000)], ids=["number", "size"]
)
def test_the_copies_used_longest_ago_are_removed(limits: CacheLimits, store: RecordStore, tmp_path: Path):
    """This machine keeps copies of records up to a limit, and removes those first that were used longest ago."""
    limited = RecordStore(f"file://{tmp_path}/store", tmp_path / "cache", cache_limits=limits)
    runs = [f"{RUN[:-1]}{number}" for number in range(3)]
    put(tmp_path, packed(("journal.jsonl", tarfile.REGTYPE, b"{}")))
    for age, run_id in enumerate(runs):
        shutil.copy(tmp_path / "store" / f"{RUN}.tar.gz", tmp_path / "store" / f"{run_id}.tar.gz")
        found = limited.fetch(run_id)
        assert found is not None
        os.utime(found, (age, age))
        limited.fetch(runs[0])
    assert sorted(each.name for each in (tmp_path / "cache").iterdir()) == [runs[0], runs[2]]


def test_nothing_is_fetched_to_a_full_disk(
    store: RecordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A record is not fetched if the disk would be nearly full with it, and nothing of it is kept."""
    put(tmp_path, packed(("journal.jsonl", tarfile.REGTYPE, b"{}")))
    full = shutil.disk_usage(tmp_path)._replace(free=1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    with pytest.raises(InfrastructureFault, match="nearly full"):
        store.fetch(RUN)
    assert list((tmp_path / "cache").iterdir()) == []


async def test_a_record_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Concurrent requests for a record download it once, and all of them get it."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "s"))
    put(tmp_path, packed(("journal.jsonl", tarfile.REGTYPE, b"{}")))
    opened: list[str] = []
    both = threading.Barrier(2)
    open_file = LocalFileSystem.open

    def count(files: LocalFileSystem, path: str, *args: Any, **options: Any) -> Any:
        opened.append(path)
        with suppress(threading.BrokenBarrierError):  # nothing else opens the record meanwhile
            both.wait(1)
        return open_file(files, path, *args, **options)

    monkeypatch.setattr(LocalFileSystem, "open", count)
    store = RecordStore(f"file://{tmp_path}/store", tmp_path / "cache")
    found: list[Path | None] = []

    async def fetch() -> None:
        found.append(await fetch_record(store, RUN))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(fetch)
    assert (found, len(opened)) == ([tmp_path / "cache" / RUN] * 8, 1)


async def test_reading_records_leaves_threads_to_the_database(store: RecordStore, run: str):
    """A record is verified although all threads that the database uses are taken."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    others = [object() for _ in range(int(limiter.total_tokens))]
    for other in others:
        await limiter.acquire_on_behalf_of(other)
    try:
        with anyio.fail_after(60):
            answer = await show_record(FoundRecord(run_dir(run), is_here=False, host="east-7"))
    finally:
        for other in others:
            limiter.release_on_behalf_of(other)
    assert answer.verification.status == "sealed"
