"""What an image is made of: a stage of the Dockerfile, the files it copies, the image below; and the hash of it all.

Only the few forms of a Dockerfile that ours uses are read. The hash names the image, so the same inputs are
built once, and a change of any of them is another image.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from ringfence import __version__
from ringfence.frozen import frozen
from ringfence.sandbox.docker.image.targets import Target

_FORMAT = 1
"""Raised when the same inputs shall give another image."""
_FROM = re.compile(r"^FROM (?P<below>\S+) AS (?P<name>\S+)$", re.MULTILINE)
_BASE = re.compile(r"^ARG BASE=(?P<reference>\S+)$", re.MULTILINE)
_COPY = re.compile(r"^COPY (?P<source>\S+) \S+$", re.MULTILINE)
_HASH_DIGITS = 12
_RECIPE = "context"


@frozen
class Stage:
    """One stage of the Dockerfile."""

    name: Target
    below: Target | None
    """The stage it stands on; None: on the image from outside."""
    body: str
    """Its instructions after FROM."""
    sources: tuple[str, ...]
    """Files and directories of the recipe that it copies."""


@frozen
class Inputs:
    """All that decides how one image comes out."""

    target: str
    below: str
    """The image it stands on, as FROM gets it."""
    below_identity: str
    """What tells that image from others: the hash of its inputs, or a reference with a digest."""
    body: str
    files: Mapping[str, bytes]

    @property
    def hash(self) -> str:
        """SHA-256 of the inputs; what the image is called outside does not count."""
        document = {
            "format": _FORMAT,
            "target": self.target,
            "below": self.below_identity,
            "body": self.body,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()},
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @property
    def reference(self) -> str:
        """The image's name by its inputs."""
        return reference(self.target, self.hash[:_HASH_DIGITS])

    def dockerfile(self, labels: Mapping[str, str]) -> str:
        """The stage, standing on its own. All labels are one instruction: engines make a container for each."""
        pairs = " ".join(f"{name}={_quoted(value)}" for name, value in sorted(labels.items()))
        return f"FROM {self.below} AS {self.target}\n{self.body}" + (f"LABEL {pairs}\n" if pairs else "")

    def context(self, labels: Mapping[str, str]) -> bytes:
        """A tar of the Dockerfile and its files: the same inputs and labels give the same bytes."""
        packed = io.BytesIO()
        contents = {"Dockerfile": self.dockerfile(labels).encode(), **self.files}
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in sorted(contents.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                # An installed package may have lost the mode.
                entry.mode = 0o755 if data.startswith(b"#!") else 0o644
                tar.addfile(entry, io.BytesIO(data))
        return packed.getvalue()


def _quoted(value: str) -> str:
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def reference(target: str, tag: str = __version__) -> str:
    """An image's name, by default that of the last one built by this version.

    `localhost` is no registry: nobody else can publish an image of this name.
    """
    return f"localhost/ringfence/{target}:{tag}"


@cache
def stages() -> Mapping[Target, Stage]:
    """The stages of the Dockerfile, in its order."""
    text = read_file("Dockerfile").decode()
    found = list(_FROM.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    result = {}
    for match, end in zip(found, ends, strict=True):
        name, below, body = Target(match["name"]), match["below"], text[match.end() :][: end - match.end()]
        result[name] = Stage(
            name,
            None if below == "${BASE}" else Target(below),
            body.strip() + "\n",
            tuple(copied["source"] for copied in _COPY.finditer(body)),
        )
    return result


def pinned_base() -> str:
    """The image from outside that the first stage stands on, with its digest."""
    match = _BASE.search(read_file("Dockerfile").decode())
    assert match is not None
    return match["reference"]


def chain(target: Target) -> list[Stage]:
    """The stages up to one, the lowest first."""
    stage = stages()[target]
    return [*(chain(stage.below) if stage.below else ()), stage]


def stage_inputs(
    stage: Stage, below: str, below_identity: str, *, authorities: Mapping[str, bytes]
) -> Inputs:
    """What one stage is made of.

    Args:
        stage: The stage.
        below: The image it stands on, as FROM gets it.
        below_identity: What tells that image from others.
        authorities: Certificates by file name that the image trusts besides Debian's, if it is the lowest.
    """
    found: dict[str, bytes] = {}
    for source in stage.sources:
        found |= _below(_recipe() / source, source)
        if source == "authorities":
            found |= {f"authorities/{name}": data for name, data in authorities.items()}
    return Inputs(stage.name, below, below_identity, stage.body, found)


def packages(target: Target) -> tuple[str, ...]:
    """The distribution's packages that a stage installs."""
    return tuple(read_file(f"packages/{target}").decode().split())


def read_file(name: str) -> bytes:
    """A file of the recipe."""
    return (_recipe() / name).read_bytes()


def _recipe() -> Traversable:
    return files("ringfence.sandbox.docker.image") / _RECIPE


def _below(place: Traversable, name: str) -> dict[str, bytes]:
    if place.is_file():
        return {name: place.read_bytes()}
    found: dict[str, bytes] = {}
    for entry in place.iterdir():
        found |= _below(entry, f"{name}/{entry.name}")
    return found
