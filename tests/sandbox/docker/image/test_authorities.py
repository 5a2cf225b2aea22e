"""Additional authorities of an image: those that were added to the machine, and no others."""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.docker.image.recipe import host_authorities


def certificate(name: str) -> str:
    """A text in the form of a certificate."""
    body = base64.b64encode(name.encode() * 20).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


Ask = Callable[[], Mapping[str, bytes]]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine whose distribution brings one authority."""
    for folder in ("distribution", "added"):
        (tmp_path / folder).mkdir()
    (tmp_path / "distribution" / "a.crt").write_text(certificate("distribution"))
    (tmp_path / "bundle.crt").write_text(certificate("distribution"))
    return tmp_path


@pytest.fixture
def ask(machine: Path) -> Ask:
    """The additional authorities of this machine."""
    return lambda: host_authorities(
        bundle=machine / "bundle.crt",
        of_the_distribution=machine / "distribution",
        added=[machine / "added", machine / "absent"],
    )


def test_authorities_of_the_distribution_are_not_added(ask):
    """A machine without additional authorities adds none."""
    assert ask() == {}


def test_authority_only_in_the_bundle_is_added(machine, ask):
    """An authority that the machine trusts and the distribution did not bring is added unchanged."""
    with (machine / "bundle.crt").open("a") as bundle:
        bundle.write(certificate("company"))
    (found,) = ask().values()
    assert b"".join(found.split()) == b"".join(certificate("company").encode().split())


def test_authority_of_an_administrator_is_added_once(machine, ask):
    """The administrator's file and its copy in the bundle count as one authority."""
    (machine / "added" / "company.crt").write_text("a comment\n" + certificate("company"))
    with (machine / "bundle.crt").open("a") as bundle:
        bundle.write(certificate("company"))
    assert len(ask()) == 1


def test_names_come_from_the_contents(machine, ask):
    """The same certificate makes the same image, whatever its file is called."""
    (machine / "added" / "one.crt").write_text(certificate("company"))
    before = ask()
    (machine / "added" / "one.crt").rename(machine / "added" / "two.crt")
    assert ask() == before


def test_only_certificates_are_added(machine, ask):
    """Of a file only the certificates are added, no keys or other text."""
    key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    (machine / "added" / "both.crt").write_text(key + certificate("company"))
    (found,) = ask().values()
    assert b"PRIVATE" not in found
    assert b"c2VjcmV0" not in found


def test_too_many_authorities_are_refused(machine, ask):
    """Hundreds of authorities are refused as a mistake in the setup of the machine."""
    (machine / "added" / "all.crt").write_text("".join(certificate(f"company {n}") for n in range(65)))
    with pytest.raises(InfrastructureFault, match=r"65 authorities.*--without-host-ca"):
        ask()
