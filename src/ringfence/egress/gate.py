"""The ways out of one sandbox, opened as its policy grants them and closed with it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from anyio.abc import ByteStream

from ringfence.config.egress import Egress
from ringfence.config.engine_access import SOCKET_INSIDE, EngineAccess
from ringfence.config.forward import Forward
from ringfence.egress.changing import Action, changed
from ringfence.egress.environment import PROXY_PORT, USE_PROXY_INSIDE, use_proxy
from ringfence.egress.forwarding import Emit, Forwarder
from ringfence.egress.resolving import Resolve, resolve_by_system
from ringfence.errors import PolicyRefused, UsageError
from ringfence.events import EgressChanged

if TYPE_CHECKING:
    from ringfence.egress.gateway.gateway import Gateway
    from ringfence.egress.injection.injector import Injector
    from ringfence.egress.proxy.proxy import ForwardProxy

_MOST_CALLS = 32


class Notes(Protocol):
    """Takes what those who run commands inside should be told."""

    def add(self, line: str) -> None:
        """Take a line."""


class Listens(Protocol):
    """What the gate needs of a sandbox."""

    id: str

    @property
    def refusals(self) -> Notes:
        """Takes what was refused."""

    def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> Awaitable[None]:
        """Put bytes in a file inside."""

    def listen(
        self,
        serve: Callable[[ByteStream], Awaitable[None]],
        *,
        port: int | None = None,
        unix: str | None = None,
        limit: int = 200,
    ) -> AbstractAsyncContextManager[object]:
        """Take connections of processes inside."""


class Grants(Protocol):
    """What of a `SandboxSpec` the gate goes by."""

    @property
    def forward(self) -> Sequence[Forward]:
        """Services shown inside."""

    @property
    def engine_access(self) -> EngineAccess | None:
        """What may be done with a container engine."""

    @property
    def egress(self) -> Egress:
        """What may be reached by the model gateway and the forward proxy."""


class Gate:
    """The open ways out of one sandbox.

    Args:
        sandbox_id: Whose they are.
        emit: Records an event; returns when it is written.
        proxy: The forward proxy, if there is one.
    """

    def __init__(self, sandbox_id: str, emit: Emit, proxy: "ForwardProxy | None") -> None:
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._proxy = proxy

    async def change(self, action: Action, text: str, *, by: str) -> Egress:
        """Change what may be reached, while the sandbox runs; in the record before it holds. What holds then.

        Raises:
            UsageError: It is no rule, or there is no proxy to change.
            PolicyRefused: It leads where nothing may.
        """
        if self._proxy is None:
            raise UsageError("this sandbox was opened without a proxy; open it with --allow")
        change = changed(self._proxy.egress, action, text)
        await self._emit(
            EgressChanged(
                sandbox_id=self._sandbox_id,
                action=action,
                rule=str(change.rule),
                by=by,
                is_loosening=change.is_loosening,
            )
        )
        await self._proxy.change(change.egress)
        return change.egress


@asynccontextmanager
async def opened_gate(
    sandbox: Listens,
    grants: Grants,
    emit: Emit,
    *,
    gateway: "Gateway | None" = None,
    resolve: Resolve = resolve_by_system,
    with_proxy: bool = False,
    injector: "Injector | None" = None,
) -> AsyncIterator[Gate]:
    """Open the granted ways out of a sandbox until the context is left.

    Args:
        sandbox: Whose.
        grants: Which: its spec.
        emit: Records an event; returns when it is written.
        gateway: What answers where the model is granted.
        resolve: See `ForwardProxy`.
        with_proxy: Open the forward proxy also where it is granted nothing, so that something can be granted later.
        injector: Puts the secrets of `egress.swap` into requests, if there are any.

    Raises:
        PolicyRefused: A forward leads where nothing may; or secrets are to be injected, and there is no injector.
        SandboxPortError: A port of a forward is taken inside.
        SandboxStartFailed, InfrastructureFault: Engine access without an engine.
        LimitReached, AuthenticationFailed, InfrastructureFault: While it is open: the gateway has no more to give.
    """
    if grants.egress.swap and injector is None:
        raise PolicyRefused("egress.swap is asked for, and no secret was leased for it", rule="egress-swap")
    async with AsyncExitStack() as stack:
        for forward in grants.forward:
            forwarder = Forwarder(forward, sandbox_id=sandbox.id, emit=emit)
            await stack.enter_async_context(sandbox.listen(forwarder.serve, port=forward.port))
        proxy = None
        if grants.egress.wants_proxy or with_proxy:
            proxy = await _opened_proxy(stack, sandbox, grants.egress, emit, resolve, injector)
        engine = grants.engine_access
        if engine is not None:
            from ringfence.egress.engine.client import check_engine, find_socket
            from ringfence.egress.engine.proxy import EngineProxy

            socket = find_socket(engine.socket)
            await check_engine(socket)
            engine_proxy = EngineProxy(engine, socket, sandbox_id=sandbox.id, emit=emit)
            await stack.enter_async_context(
                sandbox.listen(engine_proxy.serve, unix=SOCKET_INSIDE, limit=_MOST_CALLS)
            )
        if gateway is not None and grants.egress.wants_model:
            from ringfence.egress.gateway.server import serving_gateway

            await stack.enter_async_context(serving_gateway(gateway, sandbox, emit))
        yield Gate(sandbox.id, emit, proxy)


async def _opened_proxy(
    stack: AsyncExitStack,
    sandbox: Listens,
    egress: Egress,
    emit: Emit,
    resolve: Resolve,
    injector: "Injector | None",
) -> "ForwardProxy":
    from ringfence.egress.proxy.proxy import MOST_CONNECTIONS, ForwardProxy

    await sandbox.write_file(USE_PROXY_INSIDE, use_proxy(), mode=0o444)
    interceptor = None
    if injector is not None:
        from ringfence.egress.injection.injector import AUTHORITIES_INSIDE
        from ringfence.egress.injection.interceptor import Interceptor

        await sandbox.write_file(AUTHORITIES_INSIDE, injector.bundle, mode=0o444)
        interceptor = Interceptor(injector, sandbox_id=sandbox.id, emit=emit)
    proxy = ForwardProxy(
        egress,
        sandbox_id=sandbox.id,
        emit=emit,
        resolve=resolve,
        note=sandbox.refusals.add,
        interceptor=interceptor,
    )
    await stack.enter_async_context(sandbox.listen(proxy.serve, port=PROXY_PORT, limit=MOST_CONNECTIONS))
    return proxy
