"""A dashboard in a thread of the test's process, over the real HTTP API."""

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from starlette.types import ASGIApp

from ringfence.fleet.daemon.http_server import serving, serving_on
from ringfence.web import ApiClient, Sessions, create_dashboard


@dataclass
class Dashboard:
    """A dashboard that runs."""

    address: str
    """`127.0.0.1:PORT`."""
    links: list[str] = field(default_factory=list)
    """Tokens of the links, the newest last."""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.address}"

    @property
    def link(self) -> str:
        """The link that signs in the next browser."""
        return f"{self.url}/login?token={self.links[-1]}"


@contextmanager
def running_dashboard(open_api: Callable[[], Awaitable[ASGIApp]], directory: Path) -> Iterator[Dashboard]:
    """Serve an API on a Unix socket, and a dashboard that uses it.

    Args:
        open_api: Opens the API.
        directory: For the socket; `daemon.sock` is tried before it, as if a daemon might run.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    shown = Dashboard(f"127.0.0.1:{listener.getsockname()[1]}")
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        sessions = Sessions(shown.links.append)
        sessions.new_link()
        own = directory / "api.sock"
        async with serving(await open_api(), own):
            client = ApiClient.local(directory / "daemon.sock", own)
            app = create_dashboard(
                client, sessions, hosts=[shown.address], origins=[shown.url], cookie="ringfence_test"
            )
            async with serving_on(app, listener):
                is_up.set()
                await anyio.to_thread.run_sync(is_over.wait)
            await client.aclose()

    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    assert is_up.wait(30)
    try:
        yield shown
    finally:
        is_over.set()
        thread.join(30)
