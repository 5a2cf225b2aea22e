"""The gate of one sandbox: opens the ways out that its policy grants, changes them, and closes them at the end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from anyio.abc import ByteStream
from pydantic import ValidationError

from ringfence.config.egress import WEB_PORTS, Egress, EgressRule
from ringfence.config.engine_access import SOCKET_INSIDE
from ringfence.egress.address import refused_target
from ringfence.egress.environment import PROXY_PORT, USE_PROXY_INSIDE, Grants, read_node_preload
from ringfence.egress.failure import ConfinedListener
from ringfence.egress.forward import Forwarder
from ringfence.egress.resolver import Resolve, resolve_by_system
from ringfence.errors import PolicyRefused, UsageError
from ringfence.events import EgressChanged, Emit
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.egress.gateway.gateway import Gateway
    from ringfence.egress.injection.injector import Injector
    from ringfence.egress.proxy.decision import Grant
    from ringfence.egress.proxy.proxy import ForwardProxy

_ENGINE_CALLS = 32
PROXY_CONNECTIONS = 200

Action = Literal["allow", "deny"]


@frozen
class EgressChange:
    """The result of a change of the egress rules."""

    egress: Egress
    """The rules after the change."""
    rule: EgressRule
    is_loosening: bool


class Notes(Protocol):
    """Collects notes for the user or agent that runs commands inside."""

    def add(self, line: str, grant: "Grant | None" = None) -> None:
        """Add a line about a refusal, with the grant that would allow it, or about a failure, without one."""


Serve = Callable[[ByteStream], Awaitable[None]]
"""Serves one connection to its end."""


class Listens(Protocol):
    """The part of a sandbox that the gate uses."""

    id: str

    @property
    def refusals(self) -> Notes:
        """The notes on refusals."""

    def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> Awaitable[None]:
        """Write a file inside."""

    def listen(
        self,
        serve: Serve,
        *,
        port: int | None = None,
        unix: str | None = None,
        limit: int = 200,
    ) -> AbstractAsyncContextManager[object]:
        """Accept connections from processes inside."""


class Gate:
    """The open ways out of one sandbox.

    Args:
        sandbox_id: The sandbox.
        emit: Writes an event to the record; returns when it is written.
        proxy: The forward proxy, if there is one.
    """

    def __init__(self, sandbox_id: str, emit: Emit, proxy: "ForwardProxy | None") -> None:
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._proxy = proxy

    async def change(self, action: Action, text: str, *, by: str) -> Egress:
        """Record and apply a change of the egress rules of a running sandbox; return the new rules.

        Raises:
            UsageError: The text is not a rule, or there is no proxy to change.
            PolicyRefused: The rule leads where no grant may lead.
        """
        if self._proxy is None:
            raise UsageError("this sandbox was opened without a proxy; open it with --allow")
        change = change_egress(self._proxy.egress, action, text)
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
        sandbox: The sandbox.
        grants: The granted ways out, from its spec.
        emit: Writes an event to the record; returns when it is written.
        gateway: The model gateway, which is open; served inside if model access is granted.
        resolve: How names are resolved, of forwards and of the forward proxy; see `ForwardProxy`.
        with_proxy: Open the forward proxy even if no host is granted, so that hosts can be granted later.
        injector: Puts the secrets of `egress.swap` into requests; required if there are any.

    Raises:
        PolicyRefused: No grant may lead to the target of a forward; or `egress.swap` is set without an injector.
        SandboxPortError: A port of a forward is already in use inside.
        SandboxStartFailed, InfrastructureFault: Engine access is granted, and there is no engine.
        LimitReached, AuthenticationFailed, InfrastructureFault: The gateway stopped while the gate was open.
    """
    if grants.egress.swap and injector is None:
        raise PolicyRefused("egress.swap is set, and no secret was leased for it", rule="egress-swap")
    listener = ConfinedListener(sandbox, emit)
    async with AsyncExitStack() as stack:
        for forward in grants.forward:
            forwarder = Forwarder(forward, sandbox_id=sandbox.id, emit=emit, resolve=resolve)
            await stack.enter_async_context(listener.listen(forwarder.serve, port=forward.port))
        proxy = None
        if grants.egress.wants_proxy or with_proxy:
            proxy = await _prepared_proxy(sandbox, grants.egress, emit, resolve, injector)
            await stack.enter_async_context(
                listener.listen(proxy.serve, port=PROXY_PORT, limit=PROXY_CONNECTIONS)
            )
        engine = grants.engine_access
        if engine is not None:
            from ringfence.egress.engine.client import check_engine, find_socket
            from ringfence.egress.engine.proxy import EngineProxy

            socket = find_socket(engine.socket)
            await check_engine(socket)
            engine_proxy = EngineProxy(
                engine, socket, sandbox_id=sandbox.id, emit=emit, writable=grants.writable_directories()
            )
            await stack.enter_async_context(
                listener.listen(engine_proxy.serve, unix=SOCKET_INSIDE, limit=_ENGINE_CALLS)
            )
        if gateway is not None and grants.egress.wants_model:
            from ringfence.egress.gateway.server import serving_gateway

            await stack.enter_async_context(serving_gateway(gateway, listener))
        yield Gate(sandbox.id, emit, proxy)


async def _prepared_proxy(
    sandbox: Listens,
    egress: Egress,
    emit: Emit,
    resolve: Resolve,
    injector: "Injector | None",
) -> "ForwardProxy":
    from ringfence.egress.proxy.proxy import ForwardProxy

    await sandbox.write_file(USE_PROXY_INSIDE, read_node_preload(), mode=0o444)
    interceptor = None
    if injector is not None:
        from ringfence.egress.injection.injector import AUTHORITIES_INSIDE
        from ringfence.egress.injection.interceptor import Interceptor

        await sandbox.write_file(AUTHORITIES_INSIDE, injector.bundle, mode=0o444)
        interceptor = Interceptor(injector, sandbox_id=sandbox.id, emit=emit)
    return ForwardProxy(
        egress,
        sandbox_id=sandbox.id,
        emit=emit,
        resolve=resolve,
        note=sandbox.refusals.add,
        interceptor=interceptor,
    )


def change_egress(egress: Egress, action: Action, text: str) -> EgressChange:
    """Apply a change to egress rules.

    Allowing a rule that is denied removes the denial; denying a rule that is allowed removes the permission. Otherwise
    the rule is added.

    Raises:
        UsageError: The text is not a rule, or denies a preset that is not allowed.
        PolicyRefused: The rule leads where no grant may lead.
    """
    try:
        rule = EgressRule.model_validate(text)
        if action == "deny" and rule in egress.allow:
            remaining = tuple(allowed for allowed in egress.allow if allowed != rule)
            return EgressChange(egress.model_copy(update={"allow": remaining}), rule, is_loosening=False)
        if action == "deny" and rule.preset is not None:
            raise UsageError(
                f"{text!r} cannot be denied, because this preset is not allowed; deny hosts by their names"
            )
        if action == "deny":
            changed = Egress(allow=egress.allow, deny=(*egress.deny, rule), swap=egress.swap)
            return EgressChange(changed, rule, is_loosening=False)
        deny = tuple(denied for denied in egress.deny if denied != rule)
        allow = (*(allowed for allowed in egress.allow if allowed != rule), rule)
        changed = Egress(allow=allow, deny=deny, swap=egress.swap)
    except ValidationError as exc:
        detail = exc.errors(include_url=False)[0]
        message = str(detail.get("ctx", {}).get("error", detail["msg"]))
        raise UsageError(message if repr(text) in message else f"{text!r}: {message}") from exc
    _check_loosening(rule)
    return EgressChange(changed, rule, is_loosening=True)


def _check_loosening(rule: EgressRule) -> None:
    if rule.preset == "model":
        raise PolicyRefused(
            "model access cannot be granted to a running sandbox, because its gateway is made at the start; "
            "create it with --allow model",
            rule="egress-target",
        )
    for port in rule.ports or WEB_PORTS:
        reason = refused_target(rule.host or "", port)
        if reason is not None:
            raise PolicyRefused(f"egress to '{rule}' is refused: {reason}", rule="egress-target")
