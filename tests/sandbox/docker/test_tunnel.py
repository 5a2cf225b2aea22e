"""An engine behind ssh: a real sshd on loopback, with keys and settings of its own."""

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.ports import kept_port
from tests.sandbox.docker.conftest import SOCKET

from ringfence.errors import InfrastructureFault, SandboxDied, SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.container.labels import SANDBOX
from ringfence.sandbox.docker import tunnel
from ringfence.sandbox.docker.cleanup import clean_up_engine
from ringfence.sandbox.docker.client import open_engine
from ringfence.sandbox.docker.tunnel import SshTunnel, tunnel_command

PROGRAMS = {name: shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("ssh", "sshd", "ssh-keygen")}
pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(None in PROGRAMS.values(), reason="no OpenSSH (openssh-client, openssh-server)"),
]


class Server:
    """An sshd for one user, and settings for an ssh client that knows its keys."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        for name in ("host", "mine"):
            subprocess.run(
                [str(PROGRAMS["ssh-keygen"]), "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                check=True,
            )
        (folder / "authorized").write_text((folder / "mine.pub").read_text())
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {(folder / 'host.pub').read_text()}")
        (folder / "server").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        )
        (folder / "client").write_text(
            f"IdentityFile {folder}/mine\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\n"
            "StrictHostKeyChecking yes\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where a root's sshd separates its privileges
        self.process = subprocess.Popen(
            [str(PROGRAMS["sshd"]), "-D", "-e", "-f", folder / "server"],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        while f"port {self.port}" not in (line := self.process.stderr.readline()):
            assert line, "sshd did not start"

    @property
    def url(self) -> str:
        """The address of the machine's Docker through the sshd."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{SOCKET}"

    def end(self) -> None:
        """Kill the sshd with all its connections, as if its machine was gone; may be called twice."""
        if self.process.poll() is not None:
            return
        for child in subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        ).stdout.split():
            subprocess.run(["pkill", "-KILL", "-P", child], check=False)
            with suppress(ProcessLookupError):  # it ends by itself as soon as what it waits for is dead
                os.kill(int(child), signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A listening sshd."""
    folder = Path(tempfile.mkdtemp(prefix="ringfence-sshd-"))
    with kept_port() as port:
        made = Server(folder, port)
    tunnels = folder / "tunnels"
    tunnels.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tunnels))

    def with_settings(url: str, place: Path) -> list[str]:
        # ssh looks into the home that the system's accounts name, wherever HOME points.
        program, *words = tunnel_command(url, place)
        return [program, "-F", str(folder / "client"), *words]

    monkeypatch.setattr(tunnel, "tunnel_command", with_settings)
    yield made
    made.end()
    shutil.rmtree(folder)


def tunnels(server: Server) -> list[str]:
    """The directories of this test's tunnels that exist now."""
    return [path.name for path in (server.folder / "tunnels").glob("ringfence-ssh-*")]


async def test_a_sandbox_by_ssh(image: str, server: Server):
    """Commands and megabytes of data go through the tunnel, which leaves nothing behind."""
    async with Sandbox.open(SandboxSpec(backend="docker", image=image, engine=server.url)) as sandbox:
        data = bytes(range(256)) * 20_000
        await sandbox.write_file("/var/tmp/data", data)
        assert await sandbox.read_file("/var/tmp/data") == data
        assert len(tunnels(server)) == 1
    assert tunnels(server) == []


async def test_a_tunnel_that_breaks(image: str, server: Server):
    """The sandbox dies with that reason; its container is removed when the engine can be reached again."""
    names: list[str] = []

    async def use() -> None:
        spec = SandboxSpec(backend="docker", image=image, engine=server.url)
        async with Sandbox.open(spec) as sandbox, anyio.create_task_group() as tasks:
            names.append(sandbox.id)
            tasks.start_soon(anyio.to_thread.run_sync, server.end)
            await sandbox.run(["sleep", "1000"])

    with anyio.fail_after(60), pytest.raises((SandboxDied, ExceptionGroup)) as caught:
        await use()
    assert isinstance(caught.value, SandboxDied) or caught.group_contains(SandboxDied)
    async with await open_engine("docker") as engine:
        await clean_up_engine(engine, frozenset(names))
        assert await engine.containers([f"{SANDBOX}={names[0]}"]) == []


async def test_a_key_that_is_refused(server: Server):
    """The error quotes ssh, and nothing is left behind."""
    (server.folder / "authorized").write_text("")
    with pytest.raises(InfrastructureFault, match="Permission denied"):
        await SshTunnel.start(server.url)
    assert tunnels(server) == []


async def test_unknown_host_key_is_refused(image: str, server: Server):
    """No request is sent to a machine with another host key than the known one."""
    (server.folder / "known").write_text("")
    with pytest.raises((SandboxStartFailed, InfrastructureFault), match="Host key verification failed"):
        async with Sandbox.open(SandboxSpec(backend="docker", image=image, engine=server.url)):
            pass
