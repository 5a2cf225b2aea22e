"""Runs a dashboard in a thread of the test's process, over the real HTTP API."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from playwright.sync_api import Page
from starlette.types import ASGIApp

from ringfence.fleet.daemon.http_server import serving, serving_on
from ringfence.web import ApiClient, Sessions, create_dashboard

_PATIENCE_S = 10.0


@dataclass
class Dashboard:
    """A running dashboard."""

    address: str
    """`127.0.0.1:PORT`."""
    sessions: Sessions = field(default_factory=Sessions)
    """The sessions of its browsers."""

    @property
    def url(self) -> str:
        """The dashboard's URL."""
        return f"http://{self.address}"

    def new_link(self) -> str:
        """Return a link that signs in the next browser; it replaces the link before it."""
        return f"{self.url}/login?token={self.sessions.new_link()}"

    def sign_in(self, page: Page) -> None:
        """Sign a page in by a link. Its answer refreshes itself, which would interrupt what the page is told next."""
        page.goto(self.new_link())
        page.wait_for_url(f"{self.url}/inbox")


OpenApi = Callable[[], Awaitable[ASGIApp]]


@contextmanager
def running_dashboard(open_api: OpenApi, directory: Path) -> Iterator[Dashboard]:
    """Serve an API on a Unix socket, and a dashboard that uses it.

    Args:
        open_api: Opens the API.
        directory: Directory of the socket; the dashboard tries `daemon.sock` there first, as if a daemon might run.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    shown = Dashboard(f"127.0.0.1:{listener.getsockname()[1]}")

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        own = directory / "api.sock"
        async with serving(await open_api(), own):
            client = ApiClient.local(directory / "daemon.sock", own)
            app = create_dashboard(
                client, shown.sessions, hosts=[shown.address], origins=[shown.url], cookie="ringfence_test"
            )
            async with serving_on(app, listener):
                yield
            await client.aclose()

    with _in_thread(serve):
        yield shown


@contextmanager
def running_api(open_api: OpenApi, socket_path: Path) -> Iterator[None]:
    """Serve an API on a Unix socket."""

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        async with serving(await open_api(), socket_path):
            yield

    with _in_thread(serve):
        yield


@contextmanager
def running_server(open_api: OpenApi) -> Iterator[str]:
    """Serve an API on TCP; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        async with serving_on(await open_api(), listener):
            yield

    with _in_thread(serve):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def _in_thread(enter: Callable[[], AbstractAsyncContextManager[None]]) -> Iterator[None]:
    is_up, is_over = threading.Event(), threading.Event()

    async def run() -> None:
        async with enter():
            is_up.set()
            await anyio.to_thread.run_sync(is_over.wait)
        left = asyncio.all_tasks() - {
            asyncio.current_task()
        }  # tasks of uvicorn that close connections which were aborted
        if left:
            await asyncio.wait(left, timeout=_PATIENCE_S)
        await anyio.sleep(0.05)  # the loop closes their sockets after the tasks have ended

    thread = threading.Thread(target=anyio.run, args=(run,))
    thread.start()
    assert is_up.wait(30)
    try:
        yield
    finally:
        is_over.set()
        thread.join(30)
