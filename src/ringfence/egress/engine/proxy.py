"""The filtered engine: each connection from inside is one call, decided upon, journaled, then asked anew."""

import time
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.conversation import Conversation
from ringfence.egress.engine import answers
from ringfence.egress.engine.asking import Answer, EngineGone, asked
from ringfence.egress.engine.bodies import command_of
from ringfence.egress.engine.decision import Decided, Decider, Denied
from ringfence.egress.engine.routes import Refusal, find_call
from ringfence.egress.forwarding import Emit
from ringfence.egress.pace import Pace
from ringfence.egress.pump import Exchange, exchange
from ringfence.egress.reading import Asked, Unreadable
from ringfence.errors import SandboxDied
from ringfence.events import EngineAnswered, EngineCalled

_STREAM_S = 3600.0
_STREAM_BYTES = 256 * 1024 * 1024
_ANSWER_S = 60.0
_PER_S, _BURST = 20.0, 100
_TELL_S = 5.0
_HEADERS = ("content-type", "api-version", "docker-experimental", "ostype", "server", "builder-version")
_RAW = "application/vnd.docker.raw-stream"
_SWITCHED, _OK, _CREATED, _NO_CONTENT = 101, 200, 201, 204
_PATH_CHARS = 500


class EngineProxy:
    """Serves the engine's API to one sandbox.

    Args:
        access: What is granted.
        socket: The engine's.
        sandbox_id: Whose calls they are.
        emit: Records an event; returns when it is written.
    """

    def __init__(self, access: EngineAccess, socket: Path, *, sandbox_id: str, emit: Emit) -> None:
        self._access = access
        self._socket = socket
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._pace = Pace(_PER_S, burst=_BURST)
        self._calls = 0
        self._decider = Decider(access, socket)

    async def serve(self, inside: ByteStream) -> None:
        """Answer the one request of a connection."""
        await self._pace.wait()
        conversation = Conversation(inside)
        try:
            request = await conversation.request()
        except Unreadable as exc:
            await self._tell_refused("", "", str(exc))
            await conversation.refuse(exc.status, str(exc))
            return
        if request is not None:
            await self._answer(conversation, request)

    async def _answer(self, conversation: Conversation, request: Asked) -> None:
        found = find_call(request.method, request.target)
        action = found.action if isinstance(found, Refusal) else found.route.action
        try:
            if isinstance(found, Refusal):
                raise Denied(403, found.reason)
            decided = await self._decider.decide(found, request)
        except Denied as denied:
            await self._tell_refused(request.method, request.target, str(denied), action=action)
            await conversation.refuse(denied.status, str(denied))
            return
        except EngineGone as exc:
            await self._tell_refused(request.method, request.target, f"the engine {exc}", action=action)
            await conversation.refuse(502, f"the engine {exc}")
            return
        number = await self._tell(
            request.method, request.target, action=action, allowed=True, decided=decided
        )
        await self._pass_on(conversation, decided, number)

    # --- asking

    async def _pass_on(self, conversation: Conversation, decided: Decided, number: int) -> None:
        began = time.monotonic()
        status, ended_by = 0, "cancelled"
        try:
            limit_s = _STREAM_S if decided.call.route.streams else _ANSWER_S + decided.call.seconds
            with anyio.move_on_after(limit_s) as clock:
                status, ended_by = await self._converse(conversation, decided, limit_s)
            if clock.cancelled_caught:
                ended_by = "limit"
        except EngineGone as exc:
            ended_by = "engine"
            await conversation.refuse(502, f"the engine {exc}")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            ended_by = "inside"
            raise
        finally:
            with anyio.move_on_after(_TELL_S, shield=True):
                await self._emit(
                    EngineAnswered(
                        sandbox_id=self._sandbox_id,
                        call=number,
                        status=status,
                        answer_bytes=conversation.sent_bytes,
                        ended_by=ended_by,
                        duration_ms=round((time.monotonic() - began) * 1000, 3),
                    )
                )
        if ended_by not in ("closed", "engine"):
            raise anyio.BrokenResourceError

    async def _converse(
        self, conversation: Conversation, decided: Decided, limit_s: float
    ) -> tuple[int, str]:
        """Ask and pass the answer on; its status, and what ended it."""
        route = decided.call.route
        is_held = route.action == "exec_start" and not decided.is_let_go
        async with asked(
            self._socket,
            route.method,
            decided.target,
            body=decided.body,
            upgrade=is_held,
            patience_s=min(limit_s, _ANSWER_S + decided.call.seconds),
        ) as answer:
            if is_held and answer.status == _SWITCHED:
                return answer.status, await self._hold(conversation, answer)
            if answer.status < _OK:
                raise EngineGone(f"answered with {answer.status}")
            if route.action in ("list", "images", "inspect", "info", "exec") and answer.status in (
                _OK,
                _CREATED,
            ):
                await self._edited(conversation, decided, answer)
                return answer.status, "closed"
            return answer.status, await self._copied(conversation, decided, answer)

    async def _edited(self, conversation: Conversation, decided: Decided, answer: Answer) -> None:
        """Pass on what of the answer may be seen."""
        value: Any = await answer.json()
        action = decided.call.route.action
        if action in ("list", "images"):
            value = answers.visible_only(value if isinstance(value, list) else [], self._access)
        elif not isinstance(value, dict):
            raise EngineGone("answered with another kind of JSON")
        elif action == "inspect":
            value = answers.without_secrets(value)
        elif action == "info":
            value = answers.short_info(value)
        else:
            self._decider.remember(str(value.get("Id")), decided.container or "")
        await conversation.answer_json(answer.status, value, _kept(answer, without="content-type"))

    async def _copied(self, conversation: Conversation, decided: Decided, answer: Answer) -> str:
        """Pass the answer on as it comes, up to the bound; what ended it."""
        await conversation.begin(answer.status, _kept(answer))
        if decided.call.route.method != "HEAD" and answer.status != _NO_CONTENT:
            async for piece in answer.body():
                if conversation.sent_bytes + len(piece) > _STREAM_BYTES:
                    return "limit"
                await conversation.send(piece)
        await conversation.end()
        return "closed"

    async def _hold(self, conversation: Conversation, answer: Answer) -> str:
        """Be the wire between a command and who started it."""
        early = await conversation.switch(answer.headers.get("content-type", _RAW))
        waiting = bytes(answer.http.trailing_data[0])
        passed = Exchange(limit_bytes=_STREAM_BYTES)
        if early:
            await answer.stream.send(early)
        if waiting:
            await conversation.inside.send(waiting)
        await exchange(conversation.inside, answer.stream, passed, ends_with_target=True)
        conversation.sent_bytes += passed.received_bytes
        return passed.ended_by.replace("target", "engine")

    # --- telling

    async def _tell_refused(self, method: str, target: str, reason: str, *, action: str = "") -> None:
        await self._tell(method, target, action=action, allowed=False, reason=reason)

    async def _tell(
        self,
        method: str,
        target: str,
        *,
        action: str,
        allowed: bool,
        reason: str = "",
        decided: Decided | None = None,
    ) -> int:
        self._calls += 1
        number = self._calls
        command, user = command_of(decided.body) if decided and action == "exec" else (None, None)
        await self._emit(
            EngineCalled(
                sandbox_id=self._sandbox_id,
                call=number,
                method=method[:20],
                path=target[:_PATH_CHARS],
                allowed=allowed,
                action=action,
                reason=reason[:_PATH_CHARS],
                container=decided.container if decided else None,
                command=command,
                user=user,
            )
        )
        return number


def _kept(answer: Answer, without: str = "") -> dict[str, str]:
    return {name: answer.headers[name] for name in _HEADERS if name in answer.headers and name != without}
