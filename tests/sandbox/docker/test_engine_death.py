"""A container whose engine is killed, on a Docker engine of the test's own."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import IO

import anyio
import pytest
from tests.sandbox.conftest import OTHER_UID

from ringfence.errors import SandboxDied
from ringfence.sandbox import Sandbox, SandboxSpec

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine of its own"),
]

_PATIENCE_S = 60.0
_HOLDING = "exec 9>held; flock 9; echo up; sleep 600 9>&9 & wait"


class OwnEngine:
    """A Docker engine in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        (self._folder / "settings").write_text("{}")
        places = [
            f"--{name}={self._folder / name.partition('-')[0]}"
            for name in ("data-root", "exec-root", "pidfile")
        ]
        network = ["--bridge=none", "--iptables=false", "--ip-masq=false"]
        with (self._folder / "log").open("ab") as log:
            command = [
                *("unshare", "--net"),  # without a bridge it would remove that of the machine's own Docker
                "dockerd",
                f"--host={self.url}",
                f"--config-file={self._folder / 'settings'}",
                *places,
                *network,
            ]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.ask("version")

    def ask(self, *words: str, stdin: IO[bytes] | None = None) -> None:
        """Run `docker` on the engine, once it answers."""
        command = 'until docker version >/dev/null 2>&1; do sleep 0.1; done; exec docker "$@"'
        environment = {**os.environ, "DOCKER_HOST": self.url}
        words = ("sh", "-c", command, "sh", *words)
        subprocess.run(
            words, env=environment, stdin=stdin, check=True, capture_output=True, timeout=_PATIENCE_S
        )

    def kill(self) -> None:
        """Kill the engine as a crash would: its containers stay."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the engine and everything that it started or that a crash left."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdecimal() and bytes(self._folder) in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self._folder}/")]):
            subprocess.run(["umount", mount], check=True)
        subprocess.run(["rm", "-rf", "--", self._folder], check=True)


@pytest.fixture
def engine(image: str) -> Iterator[OwnEngine]:
    """An engine of the test's own that has the image."""
    if shutil.which("dockerd") is None:
        pytest.skip("there is no dockerd")
    folder = Path(tempfile.mkdtemp(prefix="ringfence-"))  # short: sockets lie in it
    own = OwnEngine(folder)
    try:
        own.start()
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            own.ask("load", stdin=saved.stdout)
        yield own
    finally:
        own.stop()


async def test_no_process_outlives_the_sandbox(engine: OwnEngine, image: str) -> None:
    """When the engine is killed, all processes in the container are dead before the sandbox counts as closed."""
    workspace = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    os.chown(workspace, OTHER_UID, OTHER_UID)
    try:
        spec = SandboxSpec(backend="docker", image=image, engine=engine.url, workspace=workspace)
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(Sandbox.open(spec))
            process = await stack.enter_async_context(sandbox.spawn(["sh", "-c", _HOLDING]))
            assert await anext(process.stdout) == b"up\n"
            engine.kill()
            with pytest.raises(SandboxDied) as caught:
                await process.wait()
        with (workspace / "held").open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert caught.value.reason == "engine"
        assert "ended without the engine" in sandbox.last_notes[0]
    finally:
        await anyio.run_process(["rm", "-rf", "--", str(workspace)])
