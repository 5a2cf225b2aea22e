"""What a build would make: the inputs of each image up to the wanted one, before anything is done."""

from collections.abc import Mapping

from ringfence.frozen import frozen
from ringfence.sandbox.docker.image.authorities import host_authorities
from ringfence.sandbox.docker.image.bootstrap import bootstrap_inputs, mirror_of, source_of
from ringfence.sandbox.docker.image.recipe import Inputs, chain, pinned_base, stage_inputs
from ringfence.sandbox.docker.image.stored import StoredImage
from ringfence.sandbox.docker.image.targets import Target


@frozen
class Plan:
    """The way to one image."""

    source: str
    """Where the lowest image comes from, as labels name it."""
    lowest: Inputs | None
    """The image from packages; None: a registry has it."""
    links: tuple[Inputs, ...]
    """The stages, the lowest first."""
    authorities: Mapping[str, bytes]


def make_plan(
    target: Target, *, bootstrap: bool, mirror: str | None, authorities: Mapping[str, bytes]
) -> Plan:
    """The way to `target`.

    Args:
        target: The wanted image.
        bootstrap: From packages, instead of a registry's image.
        mirror: Where the packages come from.
        authorities: Certificates by file name that the images trust besides Debian's.

    Raises:
        UsageError: `mirror` is no address of a mirror.
    """
    lowest = bootstrap_inputs(mirror) if bootstrap else None
    below = lowest.reference if lowest else pinned_base()
    identity = lowest.hash if lowest else pinned_base()
    links = []
    for stage in chain(target):
        link = stage_inputs(stage, below, identity, authorities=authorities)
        below, identity = link.reference, link.hash
        links.append(link)
    return Plan(source_of(mirror) if lowest else pinned_base(), lowest, tuple(links), authorities)


def is_current(image: StoredImage) -> bool:
    """Whether a build from the same source would give an image of the same inputs, and so nothing new."""
    authorities = host_authorities() if image.authorities else {}
    from_packages, mirror = mirror_of(image.source)
    if image.target not in set(Target):
        return from_packages and bootstrap_inputs(mirror).hash == image.inputs
    plan = make_plan(Target(image.target), bootstrap=from_packages, mirror=mirror, authorities=authorities)
    return plan.links[-1].hash == image.inputs
