"""A secret in an age file: encrypted by the real library, for age identities and for SSH keys."""

import subprocess
from pathlib import Path

import pyrage
import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import KnownSecret
from ringfence.secret.source import read_source

SECRET = "hunter2-correct-horse"


async def _read(place: Path):
    reference = SecretReference.model_validate({"age": str(place / "s.age"), "identity": str(place / "id")})
    return await read_source(KnownSecret("KEY", reference, True), {})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An encrypted file and what opens it."""
    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "id").write_text(f"# created: today\n# public key: {identity.to_public()}\n{identity}\n")
    (tmp_path / "id").chmod(0o600)
    (tmp_path / "s.age").write_bytes(pyrage.encrypt(f"{SECRET}\n".encode(), [identity.to_public()]))
    return tmp_path


async def test_the_identity_opens_the_file(place: Path):
    """As age-keygen writes it, with its comments."""
    assert (await _read(place)).text == SECRET


@pytest.fixture
def of_ssh(place: Path) -> Path:
    """The same, for an SSH key."""
    (place / "id").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "id"], check=True)
    recipient = pyrage.ssh.Recipient.from_str((place / "id.pub").read_text())
    (place / "s.age").write_bytes(pyrage.encrypt(SECRET.encode(), [recipient]))
    return place


@pytest.mark.usefixtures("of_ssh")
async def test_an_ssh_key_opens_the_file(place: Path):
    """The one that people have anyway."""
    assert (await _read(place)).text == SECRET


async def test_an_identity_that_others_may_read_is_told(place: Path):
    """The encrypted file may be anybody's to read."""
    (place / "id").chmod(0o644)
    assert "chmod 600" in (await _read(place)).warnings[0]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("id", str(pyrage.x25519.Identity.generate()), "cannot be opened with"),
        ("id", "AGE-SECRET-KEY-1HUNTER2", "holds no age identity"),
        ("id", "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2", "holds no age identity"),
        ("id", "", "holds no age identity"),
        ("s.age", "hunter2", "cannot be opened with"),
        ("s.age", "x" * 70_000, "larger than"),
    ],
    ids=["another's", "broken", "broken ssh", "empty", "not encrypted", "too large"],
)
async def test_what_does_not_open_is_a_clear_error(place: Path, file: str, content: str, said: str):
    """Without a word of either file."""
    (place / file).write_text(content)
    with pytest.raises(AuthenticationFailed, match=said) as refused:
        await _read(place)
    assert "hunter2" not in str(refused.value).lower()


@pytest.mark.slow
async def test_a_passphrase_is_not_asked_for(place: Path):
    """Nobody may be there to type it."""
    (place / "s.age").write_bytes(pyrage.passphrase.encrypt(SECRET.encode(), "hunter2"))
    with pytest.raises(AuthenticationFailed, match="cannot be opened with"):
        await _read(place)
