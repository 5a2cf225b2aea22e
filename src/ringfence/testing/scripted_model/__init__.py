"""A model that follows a script: a local server with the APIs of Anthropic and OpenAI, for tests.

In a test::

    async with ScriptedModelServer.serve(parse_script("turns: [{text: Done.}]")) as server:
        client = AsyncAnthropic(base_url=server.base_url, api_key="any")

As a program: `python -m ringfence.testing.scripted_model FILE`. Format: docs/reference/scripted-model.md.
"""

from ringfence.model.scripted import Script, Turn, in_prompt, load_script, parse_script
from ringfence.model.scripted.api import RecordedRequest
from ringfence.testing.scripted_model.server import ScriptedModelServer

__all__ = [
    "RecordedRequest",
    "Script",
    "ScriptedModelServer",
    "Turn",
    "in_prompt",
    "load_script",
    "parse_script",
]
