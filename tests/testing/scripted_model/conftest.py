"""A served script and a plain HTTP client."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from ringfence.testing.scripted_model import ScriptedModelServer, parse_script

Serving = Callable[[str], AbstractAsyncContextManager[tuple[ScriptedModelServer, httpx2.AsyncClient]]]


def body(*messages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The body of a request."""
    given = messages or ({"role": "user", "content": "hi"},)
    return {"model": "any-model", "max_tokens": 100, "messages": list(given), **changes}


@pytest.fixture
def serving() -> Serving:
    """Serves the turns of a script (YAML, the list only)."""

    @asynccontextmanager
    async def serve(turns: str) -> AsyncIterator[tuple[ScriptedModelServer, httpx2.AsyncClient]]:
        async with ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server:
            headers = {"x-api-key": "any"}
            async with httpx2.AsyncClient(
                base_url=server.base_url, headers=headers, trust_env=False, timeout=10
            ) as client:
                yield server, client

    return serve
