"""What the real clients ask of the network, seen from outside by their system calls: their model, and nothing else."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from ringfence.egress.gateway.provider import PORT_INSIDE
from ringfence.testing.scripted_model import in_prompt

from .conftest import KEYS, Lab
from .test_keyless import edits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_FAMILY = re.compile(r"sa_family=AF_(INET6?)\b")
_PORT = re.compile(r"sin6?_port=htons\((\d+)\)")
_ADDRESS = re.compile(r'(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]+)"')
_MODEL = ("127.0.0.1", str(PORT_INSIDE))


@pytest.fixture
def strace() -> str:
    """The program that watches. Skips without it; fails where it must be there."""
    found = shutil.which("strace")
    if found is None and os.environ.get("TEST_REQUIRES_CLIENTS"):
        pytest.fail("strace is missing; `apt-get install strace`")
    if found is None:
        pytest.skip("strace is missing")
    return found


def waiting_process(mark: str) -> int | None:
    """The process on this machine that waits inside to be watched, by a word in its script."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:1] == [b"sh"] and any(mark.encode() in word for word in words[2:]):
                return int(entry.name)
    return None


def watch(strace: str, log: Path, go: Path, mark: str) -> "subprocess.Popen[bytes]":
    """Watch the process that waits inside and all that it starts, then let it go."""
    deadline = time.monotonic() + 60
    while (pid := waiting_process(mark)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    watcher = subprocess.Popen(
        [strace, "-f", "-qq", "-e", calls, "-o", log, "-p", str(pid)], stderr=subprocess.PIPE
    )
    while f"TracerPid:\t{watcher.pid}\n" not in Path(f"/proc/{pid}/status").read_text():
        if watcher.poll() is not None:
            assert watcher.stderr is not None
            pytest.skip(f"no process may be watched here: {watcher.stderr.read().decode().strip()}")
        time.sleep(0.02)
    go.touch()
    return watcher


def addresses(log: str) -> Counter[tuple[str, str]]:
    """Every address of the internet's that a system call named, with its port."""
    found: Counter[tuple[str, str]] = Counter()
    for line in log.splitlines():
        named = zip(_FAMILY.findall(line), _ADDRESS.findall(line), _PORT.findall(line), strict=True)
        for _, address, port in named:
            found[address, port] += 1
    return found


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_client_asks_for_its_model_and_nothing_else(
    lab: Lab, workspace: Path, tmp_path: Path, strace: str, name: str
):
    """No name is looked up and nothing is connected to but the gateway inside, from the start to the end."""
    log, go, mark = tmp_path / "log", workspace / "go", f"waits-{uuid4().hex}"
    before = f": {mark}; until test -e go; do sleep 0.05; done; rm -f go; "
    watchers: list[subprocess.Popen[bytes]] = []

    async def watched() -> None:
        watchers.append(await anyio.to_thread.run_sync(watch, strace, log, go, mark))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched)
        ended = await lab.run(name, in_prompt(edits("two")), workspace, before=before, **KEYS)
    watchers[0].send_signal(signal.SIGTERM)
    await anyio.to_thread.run_sync(watchers[0].communicate)
    assert (ended.code, ended.is_success()) == (0, True), ended
    seen = addresses(log.read_text())
    assert len(lab.server.requests) == 3
    assert set(seen) == {_MODEL}
