"""Notifications to systemd, and the unit that `fleet systemd` prints."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.fleet.fleet_files import FleetFiles

from ringfence.fleet.daemon.systemd_notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(60)
        yield listener


def test_its_variables_are_taken_out(systemd: socket.socket):
    """The protocol's variables are removed once they are read, so that no child can notify in the daemon's name."""
    environ = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "10", "WATCHDOG_PID": "1", "A": "b"}
    Notifier(environ).ready()
    assert (systemd.recv(100), environ) == (b"READY=1", {"A": "b"})


def test_an_abstract_socket_is_known():
    """An address that begins with @ is abstract, not a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("")
        listener.settimeout(10)
        Notifier({"NOTIFY_SOCKET": "@" + listener.getsockname()[1:].decode()}).stopping()
        assert listener.recv(100) == b"STOPPING=1"


def test_a_listener_that_is_gone_stops_nothing(tmp_path: Path):
    """A missing listener, or none configured, is no error."""
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    Notifier({}).ready()


def test_the_watchdog_hears_of_a_turning_loop(systemd: socket.socket):
    """The watchdog is notified twice as often as systemd requires."""

    async def listen() -> list[bytes]:
        environ = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "20000"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Notifier(environ).stay_alive)
            heard = [await anyio.to_thread.run_sync(systemd.recv, 100) for _ in range(3)]
            tasks.cancel_scope.cancel()
        return heard

    assert anyio.run(listen) == [b"WATCHDOG=1"] * 3


@pytest.mark.slow
def test_a_daemon_tells_systemd_how_it_stands(crew: FleetFiles, systemd: socket.socket):
    """The daemon notifies systemd when it is ready, reloads, is ready again, and stops."""
    crew.write(agents={"a": {"prompt": "do it", "workspace": "."}}, fleet={"workers": 0})
    environment = {**crew.environment, "NOTIFY_SOCKET": systemd.getsockname()}
    with crew.start("fleet", "up", env=environment) as daemon:
        assert systemd.recv(100) == b"READY=1"
        assert crew.status()["pid"] == daemon.pid
        daemon.send_signal(signal.SIGHUP)
        assert systemd.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert systemd.recv(100) == b"READY=1"
        daemon.terminate()
        assert systemd.recv(100) == b"STOPPING=1"


@pytest.mark.slow
def test_the_unit_starts_this_crew(crew: FleetFiles):
    """The printed unit names the file, the state directory and this very program, and systemd accepts it."""
    crew.write(fleet={"name": "night", "drain": "90s"}, agents={"a": {"prompt": "do it", "workspace": "."}})
    text = crew.does("fleet", "systemd").out
    assert f'"--file" "{crew.file}"' in text
    assert f'Environment="XDG_STATE_HOME={crew.environment["XDG_STATE_HOME"]}"' in text
    assert {"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "TimeoutStopSec=150"} <= set(
        text.splitlines()
    )
    unit = crew.home / "night.service"
    unit.write_text(text)
    if os.access("/usr/bin/systemd-analyze", os.X_OK):
        said = subprocess.run(
            ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
        )
        assert str(unit) not in said.stderr
