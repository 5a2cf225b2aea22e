"""The model gateway from inside of every fence: a script asks, is answered as it comes, and is counted."""

from collections.abc import Callable
from functools import cache
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream
from tests.egress.gateway.conftest import (
    KEY,
    PATIENCE_S,
    STREAM,
    OpenGateway,
    Record,
    Seen,
    begin,
    end,
    serving,
    text,
)
from tests.sandbox.conftest import CONTAINERS, image_for

from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.provider import environment_inside
from ringfence.events import Usage
from ringfence.sandbox import Sandbox, SandboxSpec

BACKENDS = ["bubblewrap", *(pytest.param(name, marks=pytest.mark.docker) for name in CONTAINERS)]
ASK = """
import http.client, json, os
connection = http.client.HTTPConnection(os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://"))
body = {"model": "m", "max_tokens": 500, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
headers = {"anthropic-version": "2023-06-01", "x-api-key": os.environ["ANTHROPIC_API_KEY"]}
connection.request("POST", "/v1/messages", json.dumps(body), headers)
for line in connection.getresponse():
    data = json.loads(line[5:]) if line.startswith(b"data:") else {}
    if "text" in data.get("delta", {}):
        print(data["delta"]["text"], flush=True)
"""


@pytest.fixture(scope="session")
def images() -> Callable[[str], str | None]:
    """An image for each backend."""
    return cache(image_for)


@pytest.fixture(params=BACKENDS)
def spec(request: pytest.FixtureRequest, images: Callable[[str], str | None]) -> dict[str, Any]:
    """A sandbox of each kind that is granted the model."""
    egress = Egress.model_validate({"allow": ["model"]})
    return {"backend": request.param, "image": images(request.param), "egress": egress}


@pytest.mark.slow
async def test_a_script_inside_is_answered_as_the_answer_comes_and_counted(
    spec: dict[str, Any], gateway_at: OpenGateway, record: Record
) -> None:
    """It reads the first words before the API has said the last; the usage is the sandbox's, the key the host's."""
    is_read = anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM + begin(30) + text("first"))
        await is_read.wait()
        await wire.send(text("last") + end(9))

    budget = Budget(tokens=1000)
    async with serving(respond) as api, gateway_at(api.url, budget=budget) as gateway:
        asked = SandboxSpec(**spec, env=environment_inside(gateway.kinds))
        async with (
            Sandbox.start(asked) as sandbox,
            opened_gate(sandbox, asked, record.emit, gateway=gateway),
            sandbox.spawn(["python3", "-c", ASK]) as process,
        ):
            said = b""
            with anyio.fail_after(2 * PATIENCE_S):
                async for piece in process.stdout:
                    said += piece
                    if b"first\n" in said:
                        is_read.set()
                assert (await process.wait()).exit_code == 0
            (exchanged,) = await record.has_exchanged()
    assert said == b"first\nlast\n"
    assert api.seen[0].headers["x-api-key"] == KEY
    assert (exchanged.sandbox_id, exchanged.usage) == (sandbox.id, Usage(input_tokens=30, output_tokens=9))
    assert budget.left("m") == 1000 - 39
