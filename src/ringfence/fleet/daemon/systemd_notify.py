"""What systemd is told of the daemon: that it is ready, reads its files again, stops, and is alive.

The protocol is a datagram of lines on the socket that NOTIFY_SOCKET names: sd_notify(3).
"""

import socket
import time
from collections.abc import MutableMapping

import anyio

_MICROSECONDS = 1_000_000
_NANOSECONDS = 1000


class Notifier:
    """Tells systemd, or nobody where the daemon was not started by it.

    Args:
        environ: The process's variables. Those of the protocol are taken out, so that no child can speak for us.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog = environ.pop("WATCHDOG_USEC", "")
        environ.pop("WATCHDOG_PID", None)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every_s = int(watchdog) / _MICROSECONDS / 2 if watchdog.isdecimal() and int(watchdog) else None

    def ready(self) -> None:
        """It works, or works again."""
        self._send("READY=1")

    def reloading(self) -> None:
        """It reads its files again; `ready` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // _NANOSECONDS}")

    def stopping(self) -> None:
        """It is about to end."""
        self._send("STOPPING=1")

    async def stay_alive(self) -> None:
        """Say that the loop turns, as often as systemd wants to hear it; until cancelled, or at once if it does not."""
        while self._every_s is not None:
            self._send("WATCHDOG=1")
            await anyio.sleep(self._every_s)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(message.encode(), self._address)
            except OSError:
                return  # nobody listens any more: systemd finds out by itself, and the fleet goes on
