"""Notifies systemd that the daemon is ready, reloads its files, stops, or is alive.

The protocol is a datagram of lines on the socket that NOTIFY_SOCKET names: sd_notify(3).
"""

import socket
import time
from collections.abc import MutableMapping

import anyio

_MICROSECONDS = 1_000_000
_NANOSECONDS = 1000


class Notifier:
    """Notifies systemd, and does nothing if systemd did not start the daemon.

    Args:
        environ: The process's variables. Those of the protocol are removed, so that no child can notify systemd.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog = environ.pop("WATCHDOG_USEC", "")
        environ.pop("WATCHDOG_PID", None)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._keep_alive_s = (
            int(watchdog) / _MICROSECONDS / 2 if watchdog.isdecimal() and int(watchdog) else None
        )

    def ready(self) -> None:
        """Report that the daemon is ready, also after a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that the daemon reloads its files; a call of `ready` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // _NANOSECONDS}")

    def stopping(self) -> None:
        """Report that the daemon is about to end."""
        self._send("STOPPING=1")

    async def stay_alive(self) -> None:
        """Send keep-alive messages from the event loop until cancelled. Returns at once if systemd expects none."""
        while self._keep_alive_s is not None:
            self._send("WATCHDOG=1")
            await anyio.sleep(self._keep_alive_s)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(message.encode(), self._address)
            except OSError:
                return  # systemd does not listen any more; the fleet keeps running
