"""Serves the fleet's API, its webhooks, and its metrics, at the addresses that the configuration sets."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.types import ASGIApp

from ringfence.fleet.api.access import LocalAccess, TokenAccess
from ringfence.fleet.api.app import create_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.api.monitoring import monitoring_app
from ringfence.fleet.client import socket_path
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.http_server import serving, serving_at
from ringfence.fleet.daemon.inbox_webhook import inbox_hook
from ringfence.fleet.daemon.webhooks import HookSecrets, webhook_app


@asynccontextmanager
async def open_listeners(daemon: Daemon) -> AsyncIterator[None]:
    """Serve on the Unix socket of the state directory, and at each address that the fleet sets.

    Raises:
        InfrastructureFault: The socket cannot be created, or an address cannot be listened on.
    """
    settings = daemon.fleet.settings
    api = create_app(ApiContext.of_daemon(daemon))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(LocalAccess(api), socket_path(daemon.state)))
        if settings.api is not None:
            hosts = (settings.api.address, *settings.api.hosts)
            remote = TokenAccess(api, daemon.database, hosts=hosts, log=daemon.log)
            await stack.enter_async_context(serving_at(remote, settings.api.address))
        if settings.webhooks is not None:
            await stack.enter_async_context(serving_at(_webhooks(daemon), settings.webhooks.address))
        if settings.metrics is not None:
            await stack.enter_async_context(serving_at(monitoring_app(daemon), settings.metrics.address))
        yield


def _webhooks(daemon: Daemon) -> ASGIApp:
    secrets = HookSecrets(daemon.state)
    inbox = inbox_hook(
        lambda: daemon.fleet,
        database=daemon.database,
        on_answer=daemon.dispatcher.wake,
        secrets=secrets,
        log=daemon.log,
    )
    return webhook_app(
        lambda name: daemon.fleet.agents.get(name),
        submit=daemon.submit,
        secrets=secrets,
        log=daemon.log,
        inbox=inbox,
    )
