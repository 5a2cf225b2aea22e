"""A real server with a script, the real SDK in front of it, and what was emitted."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ringfence.events import Event, ModelRetried, TextStreamed
from ringfence.model import AnthropicModel, ModelReply, ModelRequest, Patience
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


@pytest.fixture
def talk_over() -> OpenTalk:
    """Opens a talk over the turns of a script (YAML, the list only)."""

    @asynccontextmanager
    async def open_talk(
        turns: str, *, patience: Patience = QUICK, credential: Credential = KEY
    ) -> AsyncIterator[Talk]:
        async with ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server:
            model = AnthropicModel(
                credential, base_url=server.base_url, patience=patience, jitter=lambda: 0.5
            )
            try:
                yield Talk(server, model)
            finally:
                await model.aclose()

    return open_talk
