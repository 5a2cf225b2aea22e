"""A way to an engine on another machine: `ssh -N -L` from a socket of ours to the engine's."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import Process

from ringfence.errors import InfrastructureFault
from ringfence.process import kill_group, start_process
from ringfence.sandbox.docker.failure import explain

_START_S = 20.0
_POLL_S = 0.02
_WORDS = 4096
_REMOTE_SOCKET = "/var/run/docker.sock"


class SshTunnel:
    """A running `ssh`, and the socket on which it takes connections. Ends with `aclose`, or with ssh."""

    def __init__(self, process: Process, folder: Path, stderr_fd: int) -> None:
        self.socket = folder / "engine.sock"
        self._process = process
        self._folder = folder
        self._stderr_fd = stderr_fd
        self._words = b""

    @classmethod
    async def start(cls, url: str) -> "SshTunnel":
        """Connect to `ssh://[user@]host[:port][/path/of/socket]`; nothing is asked, keys must do.

        Raises:
            InfrastructureFault: There is no ssh, or it did not come up; its words are in the text.
        """
        folder = Path(tempfile.mkdtemp(prefix="ringfence-ssh-"))
        stderr_fd, theirs = os.pipe()
        os.set_blocking(stderr_fd, False)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            argv = tunnel_command(url, folder / "engine.sock")
            process = await start_process(argv, stdin=null, stdout=null, stderr=theirs)
        except BaseException:
            os.close(stderr_fd)
            os.rmdir(folder)  # noqa: PTH106 -- empty, and of ours
            raise
        finally:
            os.close(theirs)
            os.close(null)
        tunnel = cls(process, folder, stderr_fd)
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
                if self.socket.exists():
                    return
                await anyio.sleep(_POLL_S)
        raise InfrastructureFault(
            f"no ssh tunnel to {url!r}: {explain(self.last_words() or 'ssh said nothing')}"
        )

    def last_words(self) -> str:
        """What ssh said on stderr; bounded."""
        with suppress(BlockingIOError):  # nothing new
            self._words = (self._words + os.read(self._stderr_fd, _WORDS))[-_WORDS:]
        return self._words.decode("utf-8", "replace").strip()

    async def aclose(self) -> None:
        """End ssh and remove the socket."""
        await kill_group(self._process)
        os.close(self._stderr_fd)
        self.socket.unlink(missing_ok=True)
        self._folder.rmdir()


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
