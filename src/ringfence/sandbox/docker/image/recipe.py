"""Collects and hashes the inputs of an image: stages of the Dockerfile, the files they copy, the base image.

The hash names the image, so the same inputs are built once, and a change to any of them makes another image.
"""

import functools
import hashlib
import io
import json
import re
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from ringfence import __version__
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.container.labels import IMAGE_NAMES


class Target(StrEnum):
    """The images; each is a stage of the Dockerfile of that name."""

    BASE = "base"
    POLYGLOT = "polyglot"
    OPERATOR = "operator"
    AGENTS = "agents"


@frozen
class TargetFacts:
    """Properties of an image that are known before it is built."""

    summary: str
    budget_bytes: int | None = None
    """Size above which a warning is given; None: no bound, as the image holds third-party programs."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Tools that work only in part in a sandbox without capabilities and network, and what they lack there."""


@functools.cache
def target_facts(target: str) -> TargetFacts | None:
    """The properties of a target; None for a name that is not a target."""
    known = tomllib.loads(read_file("targets.toml").decode())
    return TargetFacts(**known[target]) if target in known else None


_CONTEXT = Path(__file__).parent / "context"
DEBIAN = "debian"
"""The name of the image from packages, which replaces the base image of `base` where no registry can be reached."""
SUITE = "trixie"
"""The Debian release of the Dockerfile's base."""
_PACKAGES = f"packages of {SUITE}"
_FORMAT = 2
"""Increase it to give all images new names for the same inputs."""
_HASH_DIGITS = 12
_MIRROR = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[\w.~/-]*)?|file:///[\w.~/-]*")


@frozen
class Recipe:
    """All inputs of an image."""

    target: str
    source: str
    """Where the lowest image comes from, as labels name it: a reference with a digest, or packages."""
    below: str
    """The base image of the Dockerfile, with its digest or the hash of its inputs."""
    dockerfile: str
    files: Mapping[str, bytes]

    @property
    def hash(self) -> str:
        """SHA-256 of the inputs; the image's own names are not part of it."""
        document = {
            "format": _FORMAT,
            "target": self.target,
            "source": self.source,
            "below": self.below,
            "dockerfile": self.dockerfile,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()},
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @property
    def reference(self) -> str:
        """The image's name by its inputs."""
        return reference(self.target, self.hash[:_HASH_DIGITS])

    def context(self, labels: Mapping[str, str]) -> bytes:
        """A tar of the Dockerfile and its files: the same inputs and labels give the same bytes."""
        dockerfile = f"{self.dockerfile}{label_instruction(labels)}\n"
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in sorted({"Dockerfile": dockerfile.encode(), **self.files}.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                # The file may have lost its mode when the package was installed.
                entry.mode = 0o755 if data.startswith(b"#!") else 0o644
                tar.addfile(entry, io.BytesIO(data))
        return packed.getvalue()


def label_instruction(labels: Mapping[str, str]) -> str:
    """All labels in one instruction, since engines make a container for each."""
    quoted = {name: re.sub(r'(["\\$])', r"\\\1", value) for name, value in labels.items()}
    return "LABEL " + " ".join(f'{name}="{value}"' for name, value in sorted(quoted.items()))


def reference(target: str, tag: str = __version__) -> str:
    """An image's name, by default that of the last one built by this version."""
    return f"{IMAGE_NAMES}{target}:{tag}"


def pinned_base() -> str:
    """The base image of the Dockerfile, with its digest."""
    found = re.search(r"^ARG BASE=(\S+)$", read_file("Dockerfile").decode(), re.MULTILINE)
    assert found is not None
    return found[1]


def packages_source(mirror: str | None) -> str:
    """The text by which labels name packages as the source of an image."""
    return _PACKAGES + (f" from {mirror}" if mirror else "")


def check_mirror(mirror: str | None) -> None:
    """Validate the address of a mirror.

    Raises:
        UsageError: It is not an address, or it contains a password.
    """
    if mirror is not None and not _MIRROR.fullmatch(mirror):
        raise UsageError(
            f"--mirror {mirror!r} is no address of a Debian mirror; write http://HOST/debian, https:// or file://"
        )


def recipe_of(target: str, source: str, authorities: Mapping[str, bytes]) -> Recipe:
    """Collect the inputs of an image.

    Args:
        target: A `Target`, or `DEBIAN`.
        source: `pinned_base()`, or the text that `packages_source` returned.
        authorities: Certificates by file name that the image trusts besides Debian's.
    """
    if target == DEBIAN:
        used = ("bootstrap", "dpkg.cfg", "packages/base")
        return Recipe(target, source, "", "", {name: read_file(name) for name in used})
    dockerfile = _stages(target)
    found: dict[str, bytes] = {}
    for name in re.findall(r"^COPY (\S+) ", dockerfile, re.MULTILINE):
        copied = _CONTEXT / name
        for file in [copied] if copied.is_file() else copied.rglob("*"):
            if file.is_file():
                found[str(file.relative_to(_CONTEXT))] = file.read_bytes()
    found |= {f"authorities/{name}": data for name, data in authorities.items()}
    is_packages = source.startswith(_PACKAGES)
    below = recipe_of(DEBIAN, source, {}).reference if is_packages else source
    return Recipe(target, source, below, dockerfile, found)


def _stages(target: str) -> str:
    """The Dockerfile without the stages that `target` does not need, as engines would build earlier ones, too."""
    head, *stages = re.split(r"^(?=FROM )", read_file("Dockerfile").decode(), flags=re.MULTILINE)
    kept: list[str] = []
    for stage in reversed(stages):
        _, below, _, name, *_ = stage.split()
        if name == target:
            kept.insert(0, stage)
            target = below
    return head + "".join(kept)


def packages(target: Target) -> tuple[str, ...]:
    """The distribution's packages that a stage installs."""
    return tuple(read_file(f"packages/{target}").decode().split())


def read_file(name: str) -> bytes:
    """A file of the Dockerfile's directory."""
    return (_CONTEXT / name).read_bytes()


_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_OF_THE_DISTRIBUTION = Path("/usr/share/ca-certificates")
_ADDED = (Path("/usr/local/share/ca-certificates"), Path("/etc/pki/ca-trust/source/anchors"))
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s+(?P<body>[A-Za-z0-9+/=\s]{64,65536}?)-----END CERTIFICATE-----"
)
_FILE_BYTES = 8 * 1024**2
_MOST_AUTHORITIES = 64


def host_authorities(
    *,
    bundle: Path = _BUNDLE,
    of_the_distribution: Path = _OF_THE_DISTRIBUTION,
    added: Iterable[Path] = _ADDED,
) -> Mapping[str, bytes]:
    """The certificate authorities (PEM) by file name that this machine trusts besides its distribution's.

    A company's proxy that intercepts TLS uses such an authority. A build behind it reaches nothing over https without
    it, so the image trusts what the machine trusts, records that in a label, and has a different hash.

    Args:
        bundle: All authorities that the machine trusts, as `update-ca-certificates(8)` writes them.
        of_the_distribution: Those that the distribution provides; without this file the bundle cannot be compared.
        added: The directory for authorities that administrators add.

    Raises:
        InfrastructureFault: There are more than can be intended.
    """
    found: set[bytes] = set()
    for folder in added:
        found |= _in_files(folder)
    if of_the_distribution.is_dir():
        found |= _in_file(bundle) - _in_files(of_the_distribution)
    if len(found) > _MOST_AUTHORITIES:
        raise InfrastructureFault(
            f"this machine trusts {len(found)} authorities besides its distribution's, more than {_MOST_AUTHORITIES}; "
            "see to /usr/local/share/ca-certificates, or build with --without-host-ca"
        )
    return {f"{hashlib.sha256(body).hexdigest()[:16]}.crt": _pem(body) for body in sorted(found)}


def _in_files(folder: Path) -> set[bytes]:
    files = (file for file in folder.rglob("*") if file.suffix in (".crt", ".pem", ".cer"))
    return set().union(*map(_in_file, files))


def _in_file(file: Path) -> set[bytes]:
    """The bodies of a file's certificates without white space, for comparison."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_FILE_BYTES)
    except OSError:
        return set()  # the caller may not read it, so it cannot be trusted
    return {b"".join(match["body"].split()) for match in _CERTIFICATE.finditer(data)}


def _pem(body: bytes) -> bytes:
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""))
