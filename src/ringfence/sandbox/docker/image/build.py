"""Builds the images: each stage on the one below, only those that are not there yet, and nothing half-done."""

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import aiodocker
import aiohttp
import anyio

from ringfence import __version__
from ringfence.frozen import frozen
from ringfence.sandbox.docker.client import Engine, EngineError, engine_errors
from ringfence.sandbox.docker.image import stored
from ringfence.sandbox.docker.image.authorities import host_authorities
from ringfence.sandbox.docker.image.bootstrap import bootstrap
from ringfence.sandbox.docker.image.failure import ImageBuildFailed
from ringfence.sandbox.docker.image.plan import Plan, make_plan
from ringfence.sandbox.docker.image.recipe import Inputs, reference
from ringfence.sandbox.docker.image.stored import StoredImage, built_from, discard, find_image
from ringfence.sandbox.docker.image.targets import TARGETS, Target
from ringfence.sandbox.docker.image.transcript import Tell, Transcript
from ringfence.sandbox.docker.image.turn import our_turn

_CLEANING_S = 20.0


@frozen
class BuildOptions:
    """How images are built."""

    bootstrap: bool = False
    """The lowest image from the distribution's packages, where no registry can be reached."""
    mirror: str | None = None
    """Where those packages come from; None: mmdebstrap's own choice."""
    rebuild: bool = False
    """Build even what is there, for newer packages."""
    trust_host: bool = True
    """Let the images trust the certificate authorities that were added to this machine."""


@frozen
class Built:
    """An image that is there now."""

    image: StoredImage
    was_there: bool
    seconds: float


async def build_image(engine: Engine, target: Target, options: BuildOptions, tell: Tell) -> Built:
    """Have an image, and what it stands on: what is there of the same inputs is used.

    Args:
        engine: Where it is built and kept.
        target: Which.
        options: How.
        tell: Is given each line of what goes on, as it comes.

    Raises:
        ImageBuildFailed: It could not be built. What it stands on may have been; nothing nameless is left.
        InfrastructureFault: Something that a build needs is not there.
        UsageError: An option makes no sense.
    """
    begun = time.monotonic()
    authorities = host_authorities() if options.trust_host else {}
    plan = make_plan(target, bootstrap=options.bootstrap, mirror=options.mirror, authorities=authorities)
    async with our_turn(tell):
        missing = list(plan.links)
        if not options.rebuild:
            missing = await _missing(engine, plan)
        if missing and authorities:
            tell(f"the image will trust {len(authorities)} authorities that were added to this machine")
        for link in missing:
            if link is plan.links[0] and plan.lowest is not None:
                await _have_lowest(engine, plan, options, tell)
            await build_link(engine, link, plan, options=options, tell=tell)
        await _name(engine, plan.links[-1].reference, target)
        image = await find_image(engine, plan.links[-1].reference)
    return Built(image, was_there=not missing, seconds=time.monotonic() - begun)


async def _missing(engine: Engine, plan: Plan) -> list[Inputs]:
    """What is to be built: all above the highest that is there."""
    missing: list[Inputs] = []
    for link in reversed(plan.links):
        if await built_from(engine, link.target, link.hash):
            break
        missing.insert(0, link)
    return missing


async def _have_lowest(engine: Engine, plan: Plan, options: BuildOptions, tell: Tell) -> None:
    assert plan.lowest is not None
    lowest = plan.lowest
    before = await built_from(engine, lowest.target, lowest.hash)
    if before is not None and not options.rebuild:
        return
    tell(f"making {lowest.reference} of {plan.source}")
    labels = _labels(lowest, plan, base_name="", base_digest="")
    await bootstrap(engine, lowest, mirror=options.mirror, labels=labels, tell=tell)
    await _drop(engine, before, lowest, tell)


async def build_link(engine: Engine, link: Inputs, plan: Plan, *, options: BuildOptions, tell: Tell) -> None:
    """Build one image; the one below it is there, or can be fetched.

    Args:
        engine: Where.
        link: What it is made of.
        plan: The way it is part of.
        options: How.
        tell: Is given each line of what goes on.

    Raises:
        ImageBuildFailed: It could not be built; nothing of the attempt is left.
    """
    tell(f"building {link.reference} on {link.below}")
    before = await built_from(engine, link.target, link.hash) if options.rebuild else None
    transcript = Transcript(tell)
    labels = _labels(link, plan, base_name=link.below, base_digest=await _digest(engine, link.below))
    is_done = False
    try:
        context = link.context(labels)
        await follow(engine, link.reference, context, nocache=options.rebuild, transcript=transcript)
        is_done = await built_from(engine, link.target, link.hash) is not None
        if not is_done:
            raise ImageBuildFailed(
                link.target, transcript.step, "the engine fell silent", detail=transcript.last_lines
            )
    except EngineError as exc:
        raise ImageBuildFailed(link.target, transcript.step, exc.said, detail=transcript.last_lines) from exc
    finally:
        if not is_done:
            await _clean_up(engine, transcript)
    await _drop(engine, before, link, tell)


async def _clean_up(engine: Engine, transcript: Transcript) -> None:
    """Remove what a build that failed or was cancelled made on its way.

    The last image takes those below it along. A cancelled build's last container may still be going for a moment.
    """
    with anyio.move_on_after(_CLEANING_S, shield=True):
        # The engine has no event for the end of that container.
        while transcript.made and not await discard(engine, transcript.made[-1]):  # noqa: ASYNC110
            await anyio.sleep(0.2)


async def _drop(engine: Engine, before: StoredImage | None, link: Inputs, tell: Tell) -> None:
    """Remove the image that a newer one took the name of."""
    after = await built_from(engine, link.target, link.hash)
    if before is None or after is None or before.id == after.id:
        return
    await _name(engine, after.id, link.target)
    if not await discard(engine, before.id):
        tell(f"the old image {before.id} is still used; remove it when its containers are gone")


async def _digest(engine: Engine, below: str) -> str:
    """The digest of the image below: the pinned one, or what our own one is."""
    if "@" in below:
        return below.partition("@")[2]
    return str((await engine.image(below))["Id"])


async def _name(engine: Engine, image_id: str, target: str) -> None:
    """Let the name with our version be this image's."""
    async with engine_errors("name the image"):
        await engine.docker.images.tag(image_id, reference(target, "")[:-1], tag=__version__)


def _labels(link: Inputs, plan: Plan, *, base_name: str, base_digest: str) -> dict[str, str]:
    known = set(Target)
    summary = TARGETS[Target(link.target)].summary if link.target in known else "Debian from its packages"
    labels: Mapping[str, str] = {
        stored.TITLE: f"ringfence {link.target}",
        stored.DESCRIPTION: summary,
        stored.VERSION: __version__,
        stored.REVISION: link.hash,
        stored.CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        stored.BASE_NAME: base_name,
        stored.BASE_DIGEST: base_digest,
        stored.TARGET: link.target,
        stored.INPUTS: link.hash,
        stored.SOURCE: plan.source,
        stored.AUTHORITIES: str(len(plan.authorities)),
    }
    return {name: value for name, value in labels.items() if value}


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
