"""`ringfence serve`: the dashboard of a fleet, and of the runs and loops of this machine."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import ServerOption
from ringfence.cli.output import note, notify
from ringfence.errors import InfrastructureFault, UsageError

if TYPE_CHECKING:
    from ringfence.web import ApiClient


def serve(
    *,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Where to listen; port 0: a free one.")
    ] = "127.0.0.1:0",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in a browser.")] = False,
    server: ServerOption = None,
    allow_remote: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-remote",
            metavar="NAME",
            help="Also answer under this host name, for a reverse proxy with TLS; repeatable.",
        ),
    ] = None,
) -> None:
    """Show the dashboard in a browser.

    Prints a link that signs in one browser and works for ten minutes; Enter or the signal SIGUSR1 prints the next
    link. Shows the fleet whose daemon runs for the state directory, and without a daemon what is stored, with the runs
    and loops of this machine.
    """
    import anyio

    host, port = _parse_address(address)
    names = tuple(allow_remote or ())
    if not _is_loopback(host) and not names:
        raise UsageError(
            f"{address!r} can be reached from other machines, and the dashboard has no TLS: put a reverse proxy "
            "with TLS before it and name the host by which browsers reach that, --allow-remote NAME; or listen on "
            "127.0.0.1"
        )
    listener = _listen(host, port)
    with listener:
        anyio.run(_serve, listener, host, names, server, open_browser)


async def _serve(
    listener: socket.socket, host: str, names: Sequence[str], server: str | None, is_opened: bool
) -> None:
    import signal

    import anyio

    from ringfence.fleet.daemon.http_server import serving_on
    from ringfence.web import Sessions, create_dashboard

    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    base = f"https://{names[0]}" if names else f"http://{shown}:{port}"

    sessions = Sessions()

    def print_link() -> str:
        link = f"{base}/login?token={sessions.new_link()}"
        typer.echo(link)
        return link

    local = (
        []
        if names and not _is_loopback(host)
        else [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"]
    )
    hosts = [*local, *names]
    origins = [*(f"http://{each}" for each in local), *(f"https://{each}" for each in names)]
    async with _open_api(server) as api:
        app = create_dashboard(api, sessions, hosts=hosts, origins=origins, cookie=f"ringfence_{port}")
        async with serving_on(app, listener), anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1) as signals:
                notify(
                    "the dashboard is up; each link signs in one browser, within ten minutes; Enter, or SIGUSR1 to "
                    f"process {os.getpid()}, prints the next link; Ctrl-C ends the dashboard"
                )
                link = print_link()
                tasks.start_soon(_on_enter, print_link)
                with _opened_page(link) if is_opened else nullcontext():
                    async for received in signals:
                        if received != signal.SIGUSR1:
                            break
                        print_link()
            tasks.cancel_scope.cancel()


async def _on_enter(act: Callable[[], object]) -> None:
    """Call a function for each line that is typed in the terminal, while this process is in its foreground."""
    import sys

    import anyio

    if sys.stdin is None or not sys.stdin.isatty():
        return
    terminal = sys.stdin.fileno()
    with suppress(OSError):  # the terminal was closed
        while True:
            await anyio.wait_readable(terminal)
            if os.tcgetpgrp(terminal) != os.getpgrp():  # reading would stop the process
                await anyio.sleep(1)
            elif os.read(terminal, 4096):
                act()
            else:
                return


@asynccontextmanager
async def _open_api(server: str | None) -> AsyncIterator["ApiClient"]:
    """A client of the API: of another machine, or of this one, with or without a daemon."""
    import tempfile

    from ringfence.config.paths import state_dir
    from ringfence.fleet.api.app import create_local_app
    from ringfence.fleet.api.context import ApiContext
    from ringfence.fleet.client import find_server, socket_path
    from ringfence.fleet.daemon.http_server import serving
    from ringfence.fleet.local_reader import find_fleet
    from ringfence.fleet.queries.source import FleetSource
    from ringfence.fleet.store.database import Database
    from ringfence.web import ApiClient

    if server is not None:
        remote = find_server(server)
        client = ApiClient.remote(remote.url, remote.token)
        try:
            yield client
        finally:
            await client.aclose()
        return
    state = state_dir()
    found = find_fleet(state, os.environ)
    source = None if found is None else FleetSource(Database(found.url), state, found.fleet, found.file)
    with tempfile.TemporaryDirectory(prefix="ringfence-serve-") as directory:
        own = Path(directory) / "api.sock"
        async with serving(create_local_app(ApiContext(state, None, source)), own):
            client = ApiClient.local(socket_path(state), own)
            try:
                yield client
            finally:
                await client.aclose()


def _parse_address(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address!r} is not an address; write HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as exc:
        raise InfrastructureFault(
            f"the dashboard cannot listen at {host}:{port}: {exc.strerror or exc}; name another address with --address"
        ) from exc


@contextmanager
def _opened_page(link: str) -> Iterator[None]:
    """Open a browser with a file that leads to the link; the file exists during the block.

    The link itself is no argument of the browser, since all users of the machine can read the arguments of processes.
    """
    import tempfile
    import webbrowser

    from ringfence.config.paths import make_private_dir, state_dir

    # The mode of the file is 0600.
    directory = make_private_dir(state_dir())
    with tempfile.NamedTemporaryFile("w", dir=directory, prefix="sign-in-", suffix=".html") as page:
        page.write(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>Ringfence</title>\n'
        )
        page.flush()
        if not webbrowser.open(Path(page.name).as_uri()):
            note("no browser could be opened; open the link above")
        yield
