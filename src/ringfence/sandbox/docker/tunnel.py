"""Opens an ssh tunnel to an engine on another machine: `ssh -N -L` from a local socket to the engine's."""

import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import Process

from ringfence.errors import InfrastructureFault
from ringfence.process import DEVNULL, PIPE, kill_group, start_process
from ringfence.sandbox.docker.failure import explain

_START_S = 20.0
_POLL_S = 0.02
_WORDS, _WORDS_S = 4096, 0.5
_SOCKET = "engine.sock"
_REMOTE_SOCKET = "/var/run/docker.sock"


class SshTunnel:
    """A running `ssh`, and the socket on which it accepts connections. Ends with `aclose`, or when ssh exits."""

    def __init__(self, process: Process, folder: tempfile.TemporaryDirectory[str]) -> None:
        self.socket = Path(folder.name) / _SOCKET
        self._process = process
        self._folder = folder

    @classmethod
    async def start(cls, url: str) -> "SshTunnel":
        """Connect to `ssh://[user@]host[:port][/path/of/socket]`, with keys only: ssh never prompts.

        Raises:
            InfrastructureFault: There is no ssh, or it did not come up; the text has its message.
        """
        folder = tempfile.TemporaryDirectory(prefix="ringfence-ssh-")
        try:
            command = tunnel_command(url, Path(folder.name) / _SOCKET)
            process = await start_process(command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
        except BaseException:
            folder.cleanup()
            raise
        tunnel = cls(process, folder)
        try:
            await tunnel._wait_until_open(url)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await tunnel.aclose()
            raise
        return tunnel

    async def _wait_until_open(self, url: str) -> None:
        with anyio.move_on_after(_START_S):
            while self._process.returncode is None:
                with suppress(OSError):  # the socket does not exist yet, or ssh does not listen on it yet
                    await (await anyio.connect_unix(self.socket)).aclose()
                    return
                await anyio.sleep(_POLL_S)
        said = b""
        with anyio.move_on_after(_WORDS_S), suppress(anyio.EndOfStream):
            while self._process.stderr is not None:
                said = (said + await self._process.stderr.receive())[-_WORDS:]
        words = said.decode("utf-8", "replace").strip() or "ssh said nothing"
        raise InfrastructureFault(f"no ssh tunnel to {url!r}: {explain(words)}")

    async def aclose(self) -> None:
        """End ssh and remove the socket."""
        await kill_group(self._process)
        self._folder.cleanup()


def tunnel_command(url: str, socket: Path) -> list[str]:
    """The command of a tunnel from `socket` to the engine that `url` names."""
    parts = urlsplit(url)
    target = f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname)
    options = ["BatchMode=yes", "ExitOnForwardFailure=yes", "ServerAliveInterval=10", "ServerAliveCountMax=3"]
    options += ["StreamLocalBindMask=0177", "ControlMaster=no", "ControlPath=none", "ForwardAgent=no"]
    words = ["ssh", "-N", "-T", "-a", "-x"]
    for option in options:
        words += ["-o", option]
    if parts.port is not None:
        words += ["-p", str(parts.port)]
    remote = parts.path if parts.path not in ("", "/") else _REMOTE_SOCKET
    return [*words, "-L", f"{socket}:{remote}", "--", target]
