"""Whether a call is passed on, about which container and with which body: asked of the grant and of the engine."""

from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine import answers
from ringfence.egress.engine.asking import ask_json
from ringfence.egress.engine.bodies import BadBody, exec_body, start_body
from ringfence.egress.engine.power import too_powerful, volume_names
from ringfence.egress.engine.routes import Call
from ringfence.egress.reading import Asked
from ringfence.frozen import frozen

_EXECS = 1000
_OK = 200


class Denied(Exception):
    """A call that is not passed on."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@frozen
class Decided:
    """A call that is passed on: about what, with which body."""

    call: Call
    target: str
    body: bytes = b""
    container: str | None = None
    is_let_go: bool = False
    """A command that is started and not held."""


class Decider:
    """Decides for one sandbox."""

    def __init__(self, access: EngineAccess, socket: Path) -> None:
        self._access = access
        self._socket = socket
        self._execs: OrderedDict[str, str] = OrderedDict()
        """Commands made here, to their containers: nobody's else can be started or looked at."""

    def remember(self, command: str, container: str) -> None:
        """A command was made in a container; the oldest of very many is forgotten."""
        self._execs[command] = container
        while len(self._execs) > _EXECS:
            self._execs.popitem(last=False)

    async def decide(self, call: Call, request: Asked) -> Decided:
        """What is asked of the engine, if anything.

        Raises:
            Denied, EngineGone: Nothing is.
        """
        needs = call.route.needs
        allowed = self._access.allow
        if needs is not None and needs not in allowed and not (needs == "exec" and "exec_user" in allowed):
            raise Denied(403, f"{call.route.action} is not granted; grant it by engine.allow: [{needs}]")
        if call.route.action in ("list", "images"):
            return self._decide_list(call)
        if call.route.action.startswith("exec_"):
            return self._decide_command(call, request)
        if not call.reference:
            return Decided(call, call.target(""))
        container = await self._container(call)
        identity = str(container["Id"])
        if call.route.action != "exec":
            return Decided(call, call.target(identity), container=identity)
        power = too_powerful(container, await self._volumes(container))
        if power is not None:
            raise Denied(403, f"a command in {call.reference!r} is never passed on: {power}")
        return Decided(call, call.target(identity), self._exec_body(request), identity)

    def _decide_list(self, call: Call) -> Decided:
        try:
            filters = answers.with_label(dict(call.query).get("filters", ""), self._access)
        except (ValueError, RecursionError):
            raise Denied(400, "its filters cannot be read, or one of them is not passed on") from None
        return Decided(call, call.target("", {"filters": filters}))

    def _decide_command(self, call: Call, request: Asked) -> Decided:
        container = self._execs.get(call.reference)
        if container is None:
            raise Denied(404, f"no command {call.reference[:80]!r} was made from inside")
        if call.route.action != "exec_start":
            return Decided(call, call.target(call.reference), container=container)
        try:
            body, is_let_go = start_body(request.body)
        except BadBody as exc:
            raise Denied(400, f"its body is refused: {exc}") from exc
        if not is_let_go and not request.wants_upgrade:
            raise Denied(400, "a command that is held needs `Upgrade: tcp`")
        return Decided(call, call.target(call.reference), body, container, is_let_go)

    def _exec_body(self, request: Asked) -> bytes:
        try:
            return exec_body(request.body, may_choose_user="exec_user" in self._access.allow)
        except BadBody as exc:
            raise Denied(403, f"its body is refused: {exc}") from exc

    async def _volumes(self, container: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the volumes of a container are.

        Raises:
            Denied: Of one, the engine does not say.
        """
        found: dict[str, dict[str, Any]] = {}
        for name in volume_names(container):
            status, volume = await ask_json(self._socket, f"/volumes/{quote(name, safe='')}")
            if status != _OK or not isinstance(volume, dict):
                raise Denied(
                    403, f"a command is not passed on: the engine does not say what volume {name!r} is"
                )
            found[name] = volume
        return found

    async def _container(self, call: Call) -> dict[str, Any]:
        """The container that a call is about, by the engine's own word; acted upon by its full id.

        Raises:
            Denied: There is none, or it is not to be seen: the same answer for both.
        """
        status, container = await ask_json(self._socket, f"/containers/{call.reference}/json")
        is_there = status == _OK and isinstance(container, dict) and isinstance(container.get("Id"), str)
        if not is_there or not answers.is_visible(container, self._access):
            raise Denied(
                404,
                f"no such container: {call.reference} (those with the label {self._access.label!r} are shown)",
            )
        return container  # type: ignore[no-any-return]  # a dict, as was seen
