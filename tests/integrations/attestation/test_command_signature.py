"""Signatures by a command of the user, verified by public keys in PEM form."""

import os
import select
import shlex
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.integrations.attestation.command_signature import parse_command, read_pem_key, sign

MESSAGE = b"DSSEv1 4 text 5 hello"
COMMANDS = {
    "p256": "openssl dgst -sha256 -sign {key}",
    "rsa": "openssl dgst -sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1 -sign {key}",
}


def write_keys(folder: Path, private) -> Path:
    """Write a key pair and return the file of its private half."""
    key = folder / "key.pem"
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "public.pem").write_bytes(public)
    return key


def new_private(kind: str):
    """Return a private key of a kind."""
    match kind:
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "rsa":
            return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate()


@pytest.mark.parametrize("kind", sorted(COMMANDS))
async def test_openssl(tmp_path: Path, kind: str):
    """A signature by `openssl` is verified by the public key, and is none of another message."""
    key = write_keys(tmp_path, new_private(kind))
    signature = await sign(MESSAGE, parse_command(COMMANDS[kind].format(key=shlex.quote(str(key)))))
    public = read_pem_key(tmp_path / "public.pem")
    assert public.verify(MESSAGE, signature)
    assert not public.verify(MESSAGE + b".", signature)
    assert not public.verify(MESSAGE, signature[:-1])


def test_ed25519(tmp_path: Path):
    """A raw ed25519 signature is verified."""
    private = new_private("ed25519")
    write_keys(tmp_path, private)
    public = read_pem_key(tmp_path / "public.pem")
    assert public.verify(MESSAGE, private.sign(MESSAGE))
    assert not public.verify(MESSAGE, bytes(64))


async def test_only_pss(tmp_path: Path):
    """An RSA key has one scheme: a PKCS #1 v1.5 signature is refused."""
    key = write_keys(tmp_path, new_private("rsa"))
    signature = await sign(MESSAGE, parse_command(f"openssl dgst -sha256 -sign {shlex.quote(str(key))}"))
    assert not read_pem_key(tmp_path / "public.pem").verify(MESSAGE, signature)


@pytest.mark.parametrize(
    "private",
    [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 1024)],
    ids=["P-384", "RSA 1024"],
)
def test_key_that_is_not_verified(tmp_path: Path, private):
    """Keys of other kinds or that are too short are refused by name."""
    write_keys(tmp_path, private)
    with pytest.raises(UsageError, match="none that is verified"):
        read_pem_key(tmp_path / "public.pem")


def test_no_public_key(tmp_path: Path):
    """A private key, noise or an absent file is no public key."""
    write_keys(tmp_path, new_private("ed25519"))
    (tmp_path / "noise.pem").write_bytes(b"\x00" * 1000)
    for name in ("key.pem", "noise.pem", "absent.pem"):
        with pytest.raises(UsageError, match=name):
            read_pem_key(tmp_path / name)
    assert load_pem_private_key((tmp_path / "key.pem").read_bytes(), None)


async def test_bytes_on_stdin():
    """The command reads exactly the bytes to sign."""
    assert await sign(b"a\0b\n", parse_command("cat")) == b"a\0b\n"


async def test_hanging_command(tmp_path: Path):
    """A command that hangs is ended, with all that it started."""
    held = tmp_path / "held"  # for as long as anything that the command started lives
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    script = f"sh -c 'exec 3>{held}; sleep 300 & wait'"
    with pytest.raises(InfrastructureFault, match="took longer than"):
        await sign(MESSAGE, parse_command(script), timeout_s=0.5)
    poll = select.poll()
    poll.register(reader)
    assert poll.poll(10_000) == [(reader, select.POLLHUP)]
    os.close(reader)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("yes", "more than 16384 bytes"),
        ("sh -c 'yes >&2'", "more than"),
        ("head -c 20000 /dev/zero", "more than 16384 bytes"),
        ("sh -c 'echo no token >&2; exit 3'", "failed with 3.*no token"),
        ("true", "printed no signature"),
        ("sh -c 'exec 0<&-; echo closed >&2; exit 1'", "closed"),
    ],
    ids=["flood", "flood of errors", "too long", "failure", "nothing", "stdin closed"],
)
async def test_command_that_fails(script: str, said: str):
    """A command that floods, fails or prints nothing makes no signature, and its stderr is shown."""
    with pytest.raises(InfrastructureFault, match=said):
        await sign(MESSAGE * 1000, parse_command(script))


@pytest.mark.parametrize("text", ["", "  ", "'open", "./sign", "bin/sign --now"])
def test_command_that_is_none(text: str):
    """An empty command, an open quote and a program of the current directory are refused."""
    with pytest.raises(UsageError):
        parse_command(text)


async def test_absent_program():
    """A program that the system lacks is named; PATH is not searched."""
    with pytest.raises(InfrastructureFault, match="no-such-program"):
        await sign(MESSAGE, parse_command("no-such-program"))


def test_program_that_cannot_be_executed(tmp_path: Path):
    """A program that is not there is a fault of the command line, found before anything is signed."""
    with pytest.raises(UsageError, match="cannot be executed"):
        parse_command(str(tmp_path / "absent"))
