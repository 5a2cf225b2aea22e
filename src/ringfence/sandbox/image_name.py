"""Parses names of container images as engines do (github.com/distribution/reference)."""

import re

from ringfence.frozen import frozen

DEFAULT_REGISTRY = "docker.io"

_LONGEST = 255
_DIGEST = r"sha256:[0-9a-f]{64}"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PORT = r":[0-9]{1,5}"
_NAME = re.compile(
    # The first part is a registry if it looks like a host: it has a dot, a capital letter or a port, or is `localhost`.
    rf"(?:(?P<registry>(?:localhost|[A-Za-z0-9.-]*[A-Z.][A-Za-z0-9.-]*|\[[0-9a-fA-F]*:[0-9a-fA-F:]*\])(?:{_PORT})?"
    rf"|[A-Za-z0-9.-]+{_PORT})/)?"
    rf"(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    rf"(?:@(?P<digest>{_DIGEST}))?"
)


@frozen
class ImageName:
    """The parts of an image's name."""

    registry: str
    """Host, with its port if there is one; `docker.io` if the name has no host."""
    repository: str
    tag: str | None
    digest: str | None

    @property
    def is_pinned(self) -> bool:
        """Whether it names a digest or a version other than `latest`, which is also the default."""
        return self.digest is not None or self.tag not in (None, "latest")


def parse_image_name(text: str) -> ImageName | None:
    """Parse a name; return None if no engine would accept it. An image's id (`sha256:...`) has no repository."""
    if re.fullmatch(_DIGEST, text):
        return ImageName("", "", None, text)
    found = _NAME.fullmatch(text) if len(text.partition("@")[0]) <= _LONGEST else None
    if found is None:
        return None
    return ImageName(
        found["registry"] or DEFAULT_REGISTRY, found["repository"], found["tag"], found["digest"]
    )
