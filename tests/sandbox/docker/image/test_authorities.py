"""Which authorities an image trusts besides Debian's: those that were added to the machine, no other."""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.docker.image.recipe import host_authorities


def certificate(name: str) -> str:
    """Something in the form of a certificate."""
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
    """What this machine trusts besides."""
    return lambda: host_authorities(
        bundle=machine / "bundle.crt",
        of_the_distribution=machine / "distribution",
        added=[machine / "added", machine / "absent"],
    )


def test_the_distributions_own_are_not_taken(ask):
    """A plain machine adds nothing."""
    assert ask() == {}


def test_what_only_the_bundle_has_is_taken(machine, ask):
    """An authority that the machine trusts and the distribution did not bring is passed on as it is."""
    with (machine / "bundle.crt").open("a") as bundle:
        bundle.write(certificate("company"))
    (found,) = ask().values()
    assert b"".join(found.split()) == b"".join(certificate("company").encode().split())


def test_what_an_administrator_added_is_taken_once(machine, ask):
    """A file of the administrator and its copy in the bundle are one authority."""
    (machine / "added" / "company.crt").write_text("a comment\n" + certificate("company"))
    with (machine / "bundle.crt").open("a") as bundle:
        bundle.write(certificate("company"))
    assert len(ask()) == 1


def test_names_come_from_the_contents(machine, ask):
    """The same certificate makes the same image, whatever its file is called here."""
    (machine / "added" / "one.crt").write_text(certificate("company"))
    before = ask()
    (machine / "added" / "one.crt").rename(machine / "added" / "two.crt")
    assert ask() == before


def test_keys_and_noise_are_not_taken(machine, ask):
    """Only certificates leave the machine, whatever else a file holds."""
    key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    (machine / "added" / "both.crt").write_text(key + certificate("company"))
    (found,) = ask().values()
    assert b"PRIVATE" not in found
    assert b"c2VjcmV0" not in found


def test_too_many_are_refused(machine, ask):
    """Hundreds of authorities are a mistake of a setup, and are not baked into an image."""
    (machine / "added" / "all.crt").write_text("".join(certificate(f"company {n}") for n in range(65)))
    with pytest.raises(InfrastructureFault, match=r"65 authorities.*--without-host-ca"):
        ask()
