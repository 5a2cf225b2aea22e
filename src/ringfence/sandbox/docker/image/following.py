"""Hands an engine what to build, and takes what it says meanwhile."""

import json
import os
from http import HTTPStatus
from typing import Any

import aiodocker
import aiohttp

from ringfence.sandbox.docker.client import Engine, engine_errors
from ringfence.sandbox.docker.image.transcript import Transcript

_BUILD_S = 3600.0
_MESSAGE_BYTES = 1024**2
"""Engines pass on what a step writes in one piece, escaped."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Build arguments that engines know by themselves and keep out of images (Dockerfile reference, "ARG")."""


async def follow(engine: Engine, name: str, context: bytes, *, nocache: bool, transcript: Transcript) -> None:
    """Have the engine build, and take what it says until it is done (Docker Engine API, POST /build).

    Not by aiodocker's method: that one leaves the connection open when it is cancelled, and by nothing else does an
    engine know that nobody waits for the build any more.
    """
    proxies = {variable: os.environ[variable] for variable in _PROXIES if os.environ.get(variable)}
    parameters = {"t": name, "rm": "1", "forcerm": "1", "nocache": str(int(nocache))}
    request = engine.docker.session.post(
        f"{engine.docker.docker_host}/v{engine.facts.api_version}/build",
        params={**parameters, "buildargs": json.dumps(proxies)},
        data=context,
        headers={"Content-Type": "application/x-tar"},
        timeout=aiohttp.ClientTimeout(),
        read_bufsize=_MESSAGE_BYTES,
    )
    async with engine_errors("build the image", timeout_s=_BUILD_S), request as response:
        try:
            if response.status != HTTPStatus.OK:
                raise aiodocker.DockerError(response.status, await response.text())
            async for line in response.content:
                _take(json.loads(line), transcript)
        finally:
            response.close()


def _take(message: Any, transcript: Transcript) -> None:
    if not isinstance(message, dict):
        raise ValueError(f"the engine said {str(message)[:80]!r} in a build")
    transcript.take(message)
    if "error" in message:
        raise aiodocker.DockerError(HTTPStatus.OK, str(message["error"]))
