"""What `--sign-with` names signs envelopes, and the keys that a user trusts verify them."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.integrations.attestation.test_command_signature import COMMANDS, write_keys
from tests.integrations.attestation.test_ssh_signature import allow, new_key, run

from ringfence.errors import AuthenticationFailed, ConfigurationError, UsageError
from ringfence.integrations.attestation.envelope import make_envelope, parse_envelope
from ringfence.integrations.attestation.signers import parse_signer, read_verifiers
from ringfence.integrations.attestation.verification import check_signatures, judge_signatures

NOW = datetime(2026, 6, 1, tzinfo=UTC)


async def signers_of(data: bytes, *files: Path, issued_at: datetime = NOW, now: datetime = NOW) -> list[str]:
    """Those whose signatures of an envelope count, as the keys in these files say."""
    envelope = parse_envelope(data, name="x")
    check_signatures(envelope, name="x")
    judged = await judge_signatures(envelope, read_verifiers(files), issued_at=issued_at, now=now, name="x")
    return [each.signer for each in judged if each.signer is not None]


@pytest.mark.parametrize("form", ["public key", "allowed signers"])
async def test_ssh(tmp_path: Path, form: str):
    """A key of OpenSSH signs, and is trusted by its public key or by a list of allowed signers."""
    key = new_key(tmp_path)
    data = await make_envelope(b"payload", [parse_signer(f"ssh:{key}")])
    trusted = key.with_suffix(".pub") if form == "public key" else allow(tmp_path, key)
    assert len(await signers_of(data, trusted)) == 1
    with pytest.raises(AuthenticationFailed):
        await signers_of(data, new_key(tmp_path, "other").with_suffix(".pub"))


async def test_the_name_of_an_ssh_key_cannot_be_changed(tmp_path: Path):
    """A signature whose keyid names another key counts for nobody, as the keyid is printed as the key that signed."""
    key = new_key(tmp_path)
    data = await make_envelope(b"payload", [parse_signer(f"ssh:{key}")])
    (signature,) = parse_envelope(data, name="x").signatures
    other = data.replace(signature.keyid.encode(), b"SHA256:" + b"A" * 43)
    with pytest.raises(AuthenticationFailed):
        await signers_of(other, key.with_suffix(".pub"))


async def test_command(tmp_path: Path):
    """A command signs, and is trusted by its public key in PEM form."""
    key = write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    command = COMMANDS["p256"].format(key=shlex.quote(str(key)))
    data = await make_envelope(b"payload", [parse_signer(f"command:{command}")])
    assert len(await signers_of(data, tmp_path / "public.pem")) == 1
    assert str(key).encode() not in data
    other = tmp_path / "other"
    other.mkdir()
    write_keys(other, ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(AuthenticationFailed):
        await signers_of(data, other / "public.pem")


async def test_several(tmp_path: Path):
    """One envelope has signatures of several kinds, of which those by trusted keys count."""
    key = new_key(tmp_path)
    private = write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    command = COMMANDS["p256"].format(key=shlex.quote(str(private)))
    names = (f"ssh:{key}", f"command:{command}")
    data = await make_envelope(b"payload", [parse_signer(name) for name in names])
    assert len(await signers_of(data, tmp_path / "public.pem")) == 1
    assert len(await signers_of(data, tmp_path / "public.pem", key.with_suffix(".pub"))) == 2


async def test_certificate_authority(tmp_path: Path):
    """A list of authorities alone is a file of keys."""
    authority, key = new_key(tmp_path, "ca"), new_key(tmp_path)
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "id", "-n", "me@example.com", str(key) + ".pub")
    data = await make_envelope(b"payload", [parse_signer(f"ssh:{tmp_path / 'key-cert.pub'}")])
    allowed = allow(tmp_path, authority, "cert-authority", "*@example.com")
    assert len(await signers_of(data, allowed)) == 1


@pytest.mark.parametrize(
    ("issued_at", "now"),
    [
        (NOW.replace(year=2025), NOW),
        (NOW, NOW.replace(year=2027)),
        (NOW.replace(year=2025), NOW.replace(year=2025)),
    ],
    ids=["issued too early", "verified too late", "never valid"],
)
async def test_expired(tmp_path: Path, issued_at: datetime, now: datetime):
    """A key counts only where it is valid both when the statement says it was made and when it is verified."""
    key = new_key(tmp_path)
    data = await make_envelope(b"payload", [parse_signer(f"ssh:{key}")])
    allowed = allow(tmp_path, key, 'valid-after="20260101Z",valid-before="20261231Z"')
    assert await signers_of(data, allowed)
    with pytest.raises(AuthenticationFailed, match=r"valid only after 2026-01-01|expired at 2026-12-31"):
        await signers_of(data, allowed, issued_at=issued_at, now=now)


@pytest.mark.parametrize("text", ["", "ssh:", "command:", "command:./x", "gpg:me", "journal:x", "ssh"])
def test_signer_that_is_none(text: str):
    """A name of another form is refused."""
    with pytest.raises(UsageError):
        parse_signer(text)


def test_files_without_keys(tmp_path: Path):
    """A file that is absent, empty, too large or a private key is refused."""
    key = new_key(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"#" * 2_000_000)
    for file in (tmp_path / "absent", tmp_path / "empty", tmp_path / "large", key):
        with pytest.raises(ConfigurationError, match=file.name):
            read_verifiers([file])


async def test_key_for_other_namespaces(tmp_path: Path):
    """A list whose keys are limited to other namespaces is refused with that reason."""
    allowed = allow(tmp_path, new_key(tmp_path), 'namespaces="git"')
    with pytest.raises(ConfigurationError, match="namespaces"):
        read_verifiers([allowed])
