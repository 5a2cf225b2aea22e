"""What a client asks of a holder besides commands: to change what may be reached, and to show a port to the host."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import anyio

from ringfence.egress.publishing import published
from ringfence.errors import ExitCode, PolicyRefused, RingfenceError, SandboxDied, UsageError
from ringfence.events import Event
from ringfence.sandbox.guest import frames
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.attaching import gone
from ringfence.sandbox.supervisor.peer import ANSWER, CHANGE, PUBLISH, Peer
from ringfence.sandbox.supervisor.place import HolderPlace
from ringfence.sandbox.supervisor.state import HolderState

ChangeEgress = Callable[[str, str, str], Awaitable[None]]
"""Given `allow` or `deny`, the rule, and who asks."""

_ANSWER_S = 60.0
_HIGHEST_PORT = 65_535


async def answer(
    peer: Peer,
    kind: int,
    payload: bytes,
    *,
    sandbox: Sandbox,
    record: Callable[[Event], Awaitable[None]],
    change: ChangeEgress | None,
) -> None:
    """In a holder: do what a client asks, and say what came of it. A port is shown until this is cancelled."""
    try:
        fields = dict(frames.decode_record(payload))
        if kind == CHANGE:
            if change is None:
                raise UsageError("this sandbox has no gate that could be changed")
            with anyio.CancelScope(shield=True):
                await change(fields.get("action", ""), fields.get("rule", ""), f"uid {peer.uid}")
            _say(peer, [("done", "1")])
            return
        port, host_port = _port(fields, "port", least=1), _port(fields, "host_port", least=0)
        async with published(sandbox, port, record, host_port=host_port) as chosen:
            _say(peer, [("host_port", chosen)])
            await anyio.sleep_forever()
    except SandboxDied:
        return  # every client is told of it
    except RingfenceError as exc:
        _say(peer, [("error", str(exc)), ("exit_code", int(exc.exit_code))])


def _say(peer: Peer, fields: Iterable[tuple[str, object]]) -> None:
    peer.send(ANSWER, 0, frames.encode_record(fields))


def _port(fields: Mapping[str, str], name: str, *, least: int) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and least <= int(text[:6]) <= _HIGHEST_PORT):
        raise UsageError(f"{text!r} is no port; a port is a number from {least} to {_HIGHEST_PORT}")
    return int(text)


async def change_egress(place: HolderPlace, state: HolderState, *, action: str, rule: str) -> None:
    """As a client: change what may be reached.

    Raises:
        UsageError, PolicyRefused: The holder says why not.
        SandboxDied: It is gone.
    """
    async with _asked(place, state, CHANGE, [("action", action), ("rule", rule)]):
        pass


@asynccontextmanager
async def shown_port(
    place: HolderPlace, state: HolderState, port: int, *, host_port: int
) -> AsyncIterator[tuple[int, Callable[[], Awaitable[None]]]]:
    """As a client: have a port inside shown on the host's loopback until the context is left.

    Args:
        place: Where the holder is.
        state: What it has written there.
        port: Inside.
        host_port: On the host; 0 picks a free one.

    Yields:
        The port on the host, and what returns once the sandbox has gone.

    Raises:
        UsageError: The host's port is taken.
        SandboxDied: The sandbox is gone.
    """
    asked = _asked(place, state, PUBLISH, [("port", port), ("host_port", host_port)])
    async with asked as (fields, over):
        yield int(fields.get("host_port", "0")), over


@asynccontextmanager
async def _asked(
    place: HolderPlace, state: HolderState, kind: int, fields: Iterable[tuple[str, object]]
) -> AsyncIterator[tuple[dict[str, str], Callable[[], Awaitable[None]]]]:
    """The holder's answer, for as long as the connection is held."""
    try:
        connection = place.connect()
    except OSError as exc:
        raise gone(state) from exc
    connection.setblocking(False)
    peer = Peer(connection)
    try:
        peer.send(kind, 0, frames.encode_record(fields))
        came = peer.frames()
        said: dict[str, str] | None = None
        with anyio.move_on_after(_ANSWER_S):
            async for one, _channel, payload in came:
                if one == ANSWER:
                    said = dict(frames.decode_record(payload))
                    break
        if said is None:
            raise gone(state)
        _raise(said)

        async def over() -> None:
            async for _frame in came:
                pass

        yield said, over
    finally:
        peer.close()


def _raise(said: Mapping[str, str]) -> None:
    message = said.get("error")
    if message is None:
        return
    if said.get("exit_code") == str(int(ExitCode.REFUSED)):
        raise PolicyRefused(message, rule="egress-target")
    raise UsageError(message)
