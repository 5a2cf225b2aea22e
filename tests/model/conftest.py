"""A real server with a script, the real SDK in front of it, and what was emitted."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provided import Provided
from ringfence.events import Event, ModelRetried, TextStreamed
from ringfence.model.anthropic import AnthropicModel
from ringfence.model.base import ModelReply, ModelRequest
from ringfence.model.patience import Patience
from ringfence.model.through_gateway import model_through
from ringfence.secret import Credential
from ringfence.testing.scripted_model import ScriptedModelServer, parse_script

KEY = Credential("api_key", "sk-ant-secret-of-the-test")
QUICK = Patience(backoff_s=0.001, idle_s=5.0, first_byte_s=5.0)


@dataclass
class Talk:
    """One model behind one server."""

    server: ScriptedModelServer
    model: AnthropicModel
    events: list[Event] = field(default_factory=list)

    async def ask(self, prompt: str = "hi", **changes: Any) -> ModelReply:
        """One request, with what was emitted kept in `events`."""
        given: dict[str, Any] = {
            "model": "scripted",
            "system": "",
            "messages": ({"role": "user", "content": prompt},),
        }
        return await self.model.reply(ModelRequest(**{**given, **changes}), self._emit)

    async def _emit(self, event: Event) -> None:
        self.events.append(event)

    @property
    def retries(self) -> list[ModelRetried]:
        """The retries that were announced."""
        return [event for event in self.events if isinstance(event, ModelRetried)]

    @property
    def streamed(self) -> str:
        """The text that was streamed, broken attempts included."""
        return "".join(event.text for event in self.events if isinstance(event, TextStreamed))


OpenTalk = Callable[..., AbstractAsyncContextManager[Talk]]


@asynccontextmanager
async def direct(base_url: str, credential: Credential, patience: Patience) -> AsyncIterator[AnthropicModel]:
    """A model that asks the server itself."""
    yield AnthropicModel(credential, base_url=base_url, patience=patience, jitter=lambda: 0.5)


@asynccontextmanager
async def gated(base_url: str, credential: Credential, patience: Patience) -> AsyncIterator[AnthropicModel]:
    """A model that asks through a gateway, as those of runs do."""
    gateway = Gateway([Provided("anthropic", credential, credential.kind, base_url)])

    async def ignore(event: Event) -> None:
        """What the gateway tells is for its own tests."""

    async with gateway.opened(ignore):
        yield model_through(gateway, patience=patience, jitter=lambda: 0.5)


@pytest.fixture(params=[direct, gated], ids=["direct", "gateway"])
def talk_over(request: pytest.FixtureRequest) -> OpenTalk:
    """Opens a talk over the turns of a script (YAML, the list only)."""

    @asynccontextmanager
    async def open_talk(
        turns: str, *, patience: Patience = QUICK, credential: Credential = KEY
    ) -> AsyncIterator[Talk]:
        async with (
            ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server,
            request.param(server.base_url, credential, patience) as model,
        ):
            try:
                yield Talk(server, model)
            finally:
                await model.aclose()

    return open_talk
