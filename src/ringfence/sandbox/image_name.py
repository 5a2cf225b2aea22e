"""Parses names of container images as engines do (github.com/distribution/reference)."""

import re

from ringfence.frozen import frozen

DEFAULT_REGISTRY = "docker.io"

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?")
_LONGEST = 255


@frozen
class ImageName:
    """The parts of an image's name."""

    registry: str
    """Host, with its port if there is one; `docker.io` where the name has none."""
    repository: str
    tag: str | None
    digest: str | None

    @property
    def is_pinned(self) -> bool:
        """Whether it names a digest or a version: not `latest`, which is also the default."""
        return self.digest is not None or self.tag not in (None, "latest")


def parse_image_name(text: str) -> ImageName:
    """Parse a name. An image's id (`sha256:...`) is a name without a repository.

    Raises:
        ValueError: No engine would accept it.
    """
    if _DIGEST.fullmatch(text):
        return ImageName("", "", None, text)
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no digest; write name@sha256:<64 hexadecimal digits>")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} is no tag")
    registry, parts = _split(head if slash else None, last)
    if len(rest) > _LONGEST or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError(f"{text[:_LONGEST]!r} is no name of an image")
    return ImageName(registry, "/".join(parts), tag if colon else None, digest or None)


def _split(head: str | None, last: str) -> tuple[str, list[str]]:
    """Registry and parts of the repository. A first part is a registry if it looks like a host."""
    parts = [*head.split("/"), last] if head is not None else [last]
    first = parts[0]
    is_host = len(parts) > 1 and (
        "." in first or ":" in first or first == "localhost" or first != first.lower()
    )
    if is_host and _REGISTRY.fullmatch(first):
        return first, parts[1:]
    return DEFAULT_REGISTRY, parts
