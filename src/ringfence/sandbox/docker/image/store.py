"""Finds the images that ringfence built in an engine: those with its labels and one of its names.

Labels alone are not enough: an image that a user makes from one of ours has them, too, and must not be removed.
"""

from collections.abc import Mapping
from typing import Any

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.container.labels import IMAGE_TARGET
from ringfence.sandbox.docker.client import Engine, EngineError
from ringfence.sandbox.docker.image.recipe import (
    DEBIAN,
    Recipe,
    Target,
    host_authorities,
    recipe_of,
    reference,
    target_facts,
)

OCI = "org.opencontainers.image."
INPUTS, SOURCE, AUTHORITIES = (f"ringfence.image.{name}" for name in ("inputs", "source", "authorities"))


@frozen
class StoredImage:
    """One image, by what the engine and its labels say."""

    id: str
    target: str
    references: tuple[str, ...]
    size_bytes: int
    inputs: str
    """Hash of its inputs."""
    source: str
    """Source of the lowest image: a reference with a digest, or packages."""
    version: str
    created: str
    base_name: str
    base_digest: str
    authorities: int
    """How many certificate authorities of the building machine it trusts."""

    @property
    def budget_bytes(self) -> int | None:
        """The size that its target may have; None: no bound."""
        facts = target_facts(self.target)
        return facts.budget_bytes if facts else None

    @property
    def is_within_budget(self) -> bool:
        """Whether its size is within the bound."""
        return self.budget_bytes is None or self.size_bytes <= self.budget_bytes

    @property
    def name(self) -> str:
        """Its name by its inputs, else another of its names, else its id."""
        own = [one for one in self.references if one.endswith(f":{self.inputs[:12]}")]
        return (*own, *self.references)[0]


async def list_images(engine: Engine) -> list[StoredImage]:
    """All images that ringfence built, the newest first."""
    found = await engine.images({"label": [IMAGE_TARGET]})
    images = [image for image in map(_stored, found) if image.references]
    return sorted(images, key=lambda image: (image.created, image.name), reverse=True)


async def find_image(engine: Engine, asked: str) -> StoredImage:
    """The image of this name: a target (its newest), a reference or an id.

    Raises:
        UsageError: There is none; the text says how to build it.
    """
    for image in await list_images(engine):
        is_short_id = len(asked) >= 6 and image.id.removeprefix("sha256:").startswith(asked)
        if is_short_id or asked in (image.target, image.id, *image.references):
            return image
    known, there = asked in set(Target), " --podman" if engine.facts.is_podman else ""
    advice = (
        f"`ringfence image build {asked}{there}` makes it"
        if known
        else f"`ringfence image ls{there}` lists them"
    )
    raise UsageError(f"the engine at {engine.address.url} has no image {asked!r} of ringfence; {advice}")


async def built_from(engine: Engine, recipe: Recipe) -> StoredImage | None:
    """The image that was made of exactly these inputs and has the name that belongs to them."""
    for image in await list_images(engine):
        if image.inputs == recipe.hash and recipe.reference in image.references:
            return image
    return None


def is_current(image: StoredImage) -> bool:
    """Whether a build from the same source would have the same inputs, and so yield nothing new."""
    if image.target != DEBIAN and image.target not in set(Target):
        return False
    authorities = host_authorities() if image.authorities else {}
    return recipe_of(image.target, image.source, authorities).hash == image.inputs


async def name_image(engine: Engine, image: str, name: str) -> None:
    """Give a name to this image."""
    repository, _, tag = name.rpartition(":")
    asked = {"repo": repository, "tag": tag}
    await engine.call("name the image", "POST", f"/images/{image}/tag", params=asked)


async def remove_image(engine: Engine, image: StoredImage) -> None:
    """Remove all names of an image; with the last one the engine removes each layer that no other image uses.

    Raises:
        EngineError: A container uses it. It keeps its last name then.
    """
    # The name by its inputs is removed last, so that an image that is in use can still be found.
    for name in sorted(image.references, key=lambda one: one == image.name):
        await engine.remove_image(name)


async def is_there(engine: Engine, image: StoredImage) -> bool:
    """Whether the engine has an image, under any name or without one.

    Raises:
        EngineError: The engine does not report it.
    """
    try:
        await engine.image(image.id)
    except EngineError as exc:
        if exc.is_absent:
            return False
        raise
    return True


async def discard(engine: Engine, image_id: str) -> bool:
    """Remove a nameless image and the images below it that no other uses; return False if something uses it.

    An image that has a name stays, as a user has named it.
    """
    try:
        if (await engine.image(image_id)).get("RepoTags"):
            return True
        await engine.remove_image(image_id)
    except EngineError as exc:
        return exc.is_absent
    return True


def _stored(row: Mapping[str, Any]) -> StoredImage:
    labels: Mapping[str, str] = row.get("Labels") or {}
    count = labels.get(AUTHORITIES, "0")
    own = reference(labels[IMAGE_TARGET], "")
    return StoredImage(
        id=str(row["Id"]),
        target=labels[IMAGE_TARGET],
        references=tuple(sorted(name for name in row.get("RepoTags") or () if name.startswith(own))),
        size_bytes=int(row.get("Size") or 0),
        inputs=labels.get(INPUTS, ""),
        source=labels.get(SOURCE, ""),
        version=labels.get(f"{OCI}version", ""),
        created=labels.get(f"{OCI}created", ""),
        base_name=labels.get(f"{OCI}base.name", ""),
        base_digest=labels.get(f"{OCI}base.digest", ""),
        authorities=int(count) if count.isdecimal() else 0,
    )
