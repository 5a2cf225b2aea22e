"""State that version 0.1 wrote, which every later version reads or migrates.

`0.1/CASE.tar.gz` is a directory as the recipe of the case left it (`recipes.py`); `make.py` records them anew. A version
that cannot read a case any more says so in one line that names the newest version that can (`product.UNSUPPORTED`).

The tests use the command line alone, so that they can run against any version: `PROMISES_PYTHON` names its interpreter.
"""

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .archive import unpack
from .cases import RECORDED, case_directory, restore_owner
from .product import Golden

_LOCK_TIMEOUT_S = 100.0
_EXIT_TIMEOUT_S = 20.0
Unpack = Callable[[str], Golden]


@pytest.fixture
def golden() -> Iterator[Unpack]:
    """Unpacks a case into the directory in which it was recorded, and removes it after the test."""
    with ExitStack() as stack:
        yield lambda case: stack.enter_context(_unpacked(case))


@pytest.fixture
def relocated(tmp_path: Path) -> Unpack:
    """Unpacks a case into another directory, so that the workspaces that its records name do not exist."""

    def unpack_case(case: str) -> Golden:
        return _unpack_into(tmp_path / case, case)

    return unpack_case


@contextmanager
def _unpacked(case: str) -> Iterator[Golden]:
    directory = case_directory(case)
    with _locked(case):
        if directory.exists():
            shutil.rmtree(directory)  # a test that was killed left it
        yield _unpack_into(directory, case)
        _assert_no_process_remains(directory / "state")
        shutil.rmtree(directory)


def _unpack_into(directory: Path, case: str) -> Golden:
    unpack(RECORDED / f"{case}.tar.gz", directory)
    (directory / "home").mkdir()
    restore_owner(directory)
    return Golden(case, directory)


@contextmanager
def _locked(case: str) -> Iterator[None]:
    """Hold the lock on the directory of a case: an abstract socket, which all users of this machine share."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try_lock(lock, f"\0ringfence-golden-{case}"):
            assert time.monotonic() < deadline, f"another process uses {case_directory(case)}"
            time.sleep(0.1)
        yield


def _try_lock(lock: socket.socket, address: str) -> bool:
    try:
        lock.bind(address)
    except OSError:
        return False
    return True


def _assert_no_process_remains(state: Path) -> None:
    """No process that a test started uses the state directory."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while remaining := list(_processes_of(state)):
        assert time.monotonic() < deadline, remaining
        time.sleep(0.1)


def _processes_of(state: Path) -> Iterator[int]:
    variable = f"RINGFENCE_STATE_DIR={state}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except OSError:
            continue  # it has ended, or belongs to another user
