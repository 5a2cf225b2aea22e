"""Builds the images, each by one build of the Dockerfile, if it does not exist yet; leaves nothing half-built."""

import fcntl
import json
import os
import platform
import re
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO

import anyio

from ringfence import __version__
from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.process import DEVNULL, PIPE, host_program, kill_group, start_process
from ringfence.sandbox.container.labels import IMAGE_TARGET
from ringfence.sandbox.docker.client import Engine, EngineError
from ringfence.sandbox.docker.image import store
from ringfence.sandbox.docker.image.failure import ImageBuildFailed
from ringfence.sandbox.docker.image.recipe import (
    DEBIAN,
    SUITE,
    Recipe,
    Target,
    check_mirror,
    host_authorities,
    label_instruction,
    packages,
    packages_source,
    pinned_base,
    recipe_of,
    reference,
    target_facts,
)
from ringfence.sandbox.docker.image.store import StoredImage, built_from, discard, find_image, name_image

Report = Callable[[str], None]
"""Called with each line. Lines come from outside: escape them before a terminal shows them."""

_BUILD_S = 3600.0
_CLEANING_S = 20.0
_BOOTSTRAP_GRACE_S = 20.0
"""Time for mmdebstrap to remove what it unpacked, when it is terminated."""
_POLL_S = 0.25
_LINE_CHARS, _KEPT_LINES = 500, 40
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Build arguments that engines know by themselves and keep out of images (Dockerfile reference, "ARG")."""
_TAR = {"Content-Type": "application/x-tar"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@frozen
class BuildOptions:
    """How images are built. A mirror that is not an address is a `UsageError`."""

    bootstrap: bool = False
    """Build the lowest image from the distribution's packages, for machines that reach no registry."""
    mirror: str | None = None
    """Mirror of those packages; None: mmdebstrap's own choice."""
    rebuild: bool = False
    """Rebuild an existing image, to get newer packages."""
    trust_host: bool = True
    """Let the images trust the certificate authorities that were added to this machine."""

    def __post_init__(self) -> None:
        check_mirror(self.mirror)


@frozen
class Built:
    """An image that exists."""

    image: StoredImage
    was_there: bool
    seconds: float


async def build_image(engine: Engine, target: Target, options: BuildOptions, report: Report) -> Built:
    """Build an image, or return the existing one with the same inputs.

    Args:
        engine: The engine that builds and keeps it.
        target: The image's target.
        options: How to build it.
        report: Called with each line of progress as it arrives.

    Raises:
        ImageBuildFailed: It could not be built; nothing nameless is left.
        InfrastructureFault: Something that a build needs is missing.
    """
    started_at = time.monotonic()
    authorities = host_authorities() if options.trust_host else {}
    source = packages_source(options.mirror) if options.bootstrap else pinned_base()
    recipe = recipe_of(target, source, authorities)
    async with _build_lock(report):
        was_there = not options.rebuild and await built_from(engine, recipe) is not None
        if not was_there:
            if authorities:
                report(f"the image will trust {len(authorities)} authorities that were added to this machine")
            if options.bootstrap:
                await _have_debian(engine, recipe_of(DEBIAN, source, {}), options, report)
            await build(engine, recipe, authorities=len(authorities), rebuild=options.rebuild, report=report)
        await name_image(engine, recipe.reference, reference(target))
        image = await find_image(engine, recipe.reference)
    return Built(image, was_there=was_there, seconds=time.monotonic() - started_at)


@asynccontextmanager
async def _build_lock(report: Report) -> AsyncIterator[None]:
    """Allow one build at a time: two of the same image would double the work and leave one image without a name."""
    path = state_dir() / "locks" / "images.lock"
    try:
        make_private_dir(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        step = next_step(exc, is_state=True)
        raise InfrastructureFault(f"could not open {str(path)!r}: {exc.strerror}; {step}") from exc
    try:
        if not try_lock(lock, fcntl.LOCK_EX, what=repr(str(path))):
            report("waiting for another build of images to end")
            while not try_lock(lock, fcntl.LOCK_EX, what=repr(str(path))):  # noqa: ASYNC110 -- of the kernel
                await anyio.sleep(_POLL_S)
        yield
    finally:
        os.close(lock)


async def build(engine: Engine, recipe: Recipe, *, authorities: int, rebuild: bool, report: Report) -> None:
    """Make the engine build one image (Docker Engine API, POST /build).

    Args:
        engine: The engine that builds it.
        recipe: The inputs of the image.
        authorities: How many of the machine's certificate authorities are among the inputs.
        rebuild: Reuse nothing of an earlier build, and remove the image that this one replaces.
        report: Called with each line of progress.

    Raises:
        ImageBuildFailed: It could not be built; nothing of the attempt is left.
    """
    report(f"building {recipe.reference} on {recipe.below}")
    before = await built_from(engine, recipe)
    log = BuildLog(report)
    image: StoredImage | None = None
    try:
        # The digest of the base image: the pinned one, or that of our own image.
        digest = recipe.below.partition("@")[2] or str((await engine.image(recipe.below))["Id"])
        labels = _labels(recipe, authorities=authorities, base_digest=digest)
        await _follow(engine, recipe, labels, log, nocache=rebuild)
        image = await built_from(engine, recipe)
        if image is None or (rebuild and before is not None and before.id == image.id):
            said = "the engine's answer ended before the image was made"
            raise ImageBuildFailed(recipe.target, log.step, said, detail=log.last_lines)
    except EngineError as exc:
        raise ImageBuildFailed(recipe.target, log.step, exc.said, detail=log.last_lines) from exc
    finally:
        if image is None:
            await _remove_made(engine, log)
    await _drop(engine, before, image, report)


async def _follow(
    engine: Engine, recipe: Recipe, labels: Mapping[str, str], log: "BuildLog", *, nocache: bool
) -> None:
    proxies = {variable: os.environ[variable] for variable in _PROXIES if os.environ.get(variable)}
    options = {
        "t": recipe.reference,
        "target": recipe.target,
        "buildargs": json.dumps({"BASE": recipe.below, **proxies}),
        "nocache": str(int(nocache)),
        "layers": "1",  # makes Podman keep the result of each step, as Docker does
        "rm": "1",
        "forcerm": "1",
    }
    await engine.follow(
        "build the image",
        "POST",
        "/build",
        log.take,
        params=options,
        data=recipe.context(labels),
        headers=_TAR,
        timeout_s=_BUILD_S,
    )


async def _remove_made(engine: Engine, log: "BuildLog") -> None:
    """Remove the intermediate images of a build that failed or was cancelled.

    Removing the last image also removes those below it. A cancelled build's last container may still run for a moment.
    """
    with anyio.move_on_after(_CLEANING_S, shield=True):
        # The engine has no event for the end of that container.
        while log.made and not await discard(engine, log.made[-1]):  # noqa: ASYNC110
            await anyio.sleep(0.2)


async def _drop(engine: Engine, before: StoredImage | None, after: StoredImage, report: Report) -> None:
    """Remove the image whose name a newer one has taken."""
    if before is None or before.id == after.id:
        return
    await name_image(engine, after.id, reference(after.target))
    if not await discard(engine, before.id):
        report(f"the old image {before.id} is still used; remove it when its containers are gone")


def _labels(recipe: Recipe, *, authorities: int, base_digest: str) -> dict[str, str]:
    facts = target_facts(recipe.target)
    labels = {
        "title": f"ringfence {recipe.target}",
        "description": facts.summary if facts else "Debian from its packages",
        "version": __version__,
        "revision": recipe.hash,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "base.name": recipe.below,
        "base.digest": base_digest,
    }
    own = {
        IMAGE_TARGET: recipe.target,
        store.INPUTS: recipe.hash,
        store.SOURCE: recipe.source,
        store.AUTHORITIES: str(authorities),
    }
    return {f"{store.OCI}{name}": value for name, value in labels.items() if value} | own


# --- the base image, where no registry can be reached


async def _have_debian(engine: Engine, recipe: Recipe, options: BuildOptions, report: Report) -> None:
    """Make the image from packages and load it into the engine.

    Raises:
        ImageBuildFailed: It could not be made. Nothing of it is left.
        InfrastructureFault: mmdebstrap is not installed, or the engine's machine is of another kind.
    """
    before = await built_from(engine, recipe)
    if before is not None and not options.rebuild:
        return
    here, there = (_ARCHITECTURES.get(one, one) for one in (platform.machine(), engine.facts.architecture))
    if here != there:
        raise InfrastructureFault(
            f"the engine's machine is {there!r} and this one {here!r}: run --bootstrap on a machine of its kind"
        )
    try:
        host_program("mmdebstrap")
    except InfrastructureFault as exc:
        raise InfrastructureFault(
            f"{exc}: --bootstrap needs it (Debian and Ubuntu: apt-get install mmdebstrap)"
        ) from exc
    report(f"making {recipe.reference} of {recipe.source}")
    with tempfile.TemporaryFile() as layer:
        await _bootstrap(recipe, options.mirror, layer.fileno(), BuildLog(report))
        layer.seek(0)
        await _import(engine, recipe, layer)
    after = await find_image(engine, recipe.reference)
    await _drop(engine, before, after, report)


async def _bootstrap(recipe: Recipe, mirror: str | None, layer: int, log: "BuildLog") -> None:
    """Write the image's one layer, a tar, to a file."""
    script, settings = (recipe.files[name].decode() for name in ("bootstrap", "dpkg.cfg"))
    words = [SUITE, ",".join(packages(Target.BASE)), settings, *([mirror] if mirror else [])]
    process = await start_process(
        ["sh", "-c", script, "bootstrap", *words], stdin=DEVNULL, stdout=layer, stderr=PIPE
    )
    try:
        assert process.stderr is not None
        async for chunk in process.stderr:
            log.write(chunk.decode("utf-8", "replace"))
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await kill_group(process, grace_s=_BOOTSTRAP_GRACE_S)
    if code != 0:
        raise ImageBuildFailed(DEBIAN, "mmdebstrap", f"exit code {code}", detail=log.last_lines)


async def _import(engine: Engine, recipe: Recipe, layer: BinaryIO) -> None:
    """Make the engine create an image of one layer (Docker Engine API, POST /images/create), and name it."""
    labels = _labels(recipe, authorities=0, base_digest="")
    # One change for each label: Podman would read several labels in one change as the value of the first.
    changes = ('CMD ["bash"]', *(label_instruction({name: value}) for name, value in labels.items()))
    messages: list[Mapping[str, Any]] = []
    try:
        await engine.follow(
            "load the image",
            "POST",
            "/images/create",
            messages.append,
            params=[("fromSrc", "-"), *(("changes", change) for change in changes)],
            data=layer,
            headers=_TAR,
            timeout_s=_BUILD_S,
        )
        made = next((str(one["status"]) for one in reversed(messages) if one.get("status")), "")
        # Podman 4.3 does not accept a name together with the layer.
        await name_image(engine, made, recipe.reference)
    except EngineError as exc:
        raise ImageBuildFailed(DEBIAN, "loading it", str(exc)) from exc


class BuildLog:
    """Splits the output of a build into lines and reports them; keeps the last lines, and the images that were made."""

    _COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
    _MADE = re.compile(r"^ ?-{2,3}> (?P<id>[0-9a-f]{8,64})$")
    """Line by which Docker's own builder and Podman's report each intermediate image."""
    _CACHED = re.compile(r"^ ?-{2,3}> Using cache")
    _STEP = re.compile(r"^STEP \d+(/\d+)?\s?: (?P<instruction>.+)$", re.IGNORECASE)

    def __init__(self, report: Report) -> None:
        self.step = ""
        """The current instruction."""
        self.made: list[str] = []
        """Intermediate images that this build made, in order, without those that existed before."""
        self._report = report
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._partial = ""
        self._was_there = False

    @property
    def last_lines(self) -> str:
        """The end of the output."""
        return "\n".join([*self._last, *([self._partial] if self._partial else [])])

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message of the engine's stream (Docker Engine API, POST /build)."""
        if isinstance(message.get("stream"), str):
            self.write(message["stream"])
        elif isinstance(message.get("status"), str) and not message.get("progressDetail"):
            name = f"{message['id']}: " if message.get("id") else ""
            self.write(f"{name}{message['status']}\n")

    def write(self, text: str) -> None:
        """Take text as it arrives: lines may come in parts, and a line may be redrawn repeatedly."""
        *lines, rest = (self._partial + text).split("\n")
        self._partial = rest[-_LINE_CHARS:]
        for line in lines:
            drawn = self._COLOUR.sub("", line.rstrip("\r").rpartition("\r")[2])[:_LINE_CHARS].rstrip()
            if drawn:
                self._note(drawn)
                self._last.append(drawn)
                self._report(drawn)

    def _note(self, line: str) -> None:
        if step := self._STEP.match(line):
            self.step = step["instruction"]
            self._was_there = self.step.upper().startswith("FROM ")
        elif self._CACHED.match(line):
            self._was_there = True
        elif made := self._MADE.match(line):
            if not self._was_there:
                self.made.append(made["id"])
            self._was_there = False
