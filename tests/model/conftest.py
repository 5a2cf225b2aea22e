"""A real server with a script, the model of a run in front of it, and what was emitted."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import ModelProvider
from ringfence.events import Event, ModelRetried, TextStreamed
from ringfence.model.base import ModelReply, ModelRequest
from ringfence.model.failure import RetryPolicy
from ringfence.model.messages_api import MessagesModel
from ringfence.model.scripted.messages import MESSAGES
from ringfence.secret import Credential
from ringfence.testing.scripted_model import ScriptedModelServer, Turn, parse_script

KEY = Credential("api_key", "sk-ant-secret-of-the-test")
QUICK = RetryPolicy(backoff_s=0.001, idle_s=5.0, first_byte_s=5.0)


def frames_of(turn: Turn) -> list[bytes]:
    """The events by which the Messages API streams a turn."""
    request = MESSAGES.parse({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    reply = MESSAGES.reply(turn, request, "1")
    return list(MESSAGES.frames(MESSAGES.reply_body(reply), reply))


@dataclass
class Talk:
    """One model behind one server."""

    server: ScriptedModelServer
    model: MessagesModel
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
async def model_of(
    base_url: str, *, credential: Credential = KEY, retries: RetryPolicy = QUICK
) -> AsyncIterator[MessagesModel]:
    """A model that asks the API at `base_url` through a gateway, as those of runs do."""
    gateway = Gateway([ModelProvider("anthropic", credential, credential.kind, base_url)])

    async def ignore(event: Event) -> None:
        """What the gateway records is for its own tests."""

    async with gateway.opened(ignore):
        yield MessagesModel(gateway, retries=retries, jitter=lambda: 0.5)


@pytest.fixture
def talk_over() -> OpenTalk:
    """Opens a talk over the turns of a script (YAML, the list only)."""

    @asynccontextmanager
    async def open_talk(
        turns: str, *, retries: RetryPolicy = QUICK, credential: Credential = KEY
    ) -> AsyncIterator[Talk]:
        async with (
            ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server,
            model_of(server.base_url, credential=credential, retries=retries) as model,
        ):
            yield Talk(server, model)

    return open_talk
