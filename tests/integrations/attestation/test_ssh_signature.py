"""Signatures of SSH keys, made and verified by the real `ssh-keygen`."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ringfence.errors import UsageError
from ringfence.integrations.attestation import ssh_signature
from ringfence.integrations.attestation.ssh_signature import NAMESPACE, NoSshKeygen, sign, verify

MESSAGE = b"DSSEv1 4 text 5 hello"
ME = "me@example.com"


def new_key(folder: Path, name: str = "key", *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair and return the file of its private half."""
    key = folder / name
    run("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(key))
    return key


def run(*words: str, stdin: bytes = b"") -> bytes:
    """Run a program and return what it prints."""
    return subprocess.run(words, input=stdin, capture_output=True, check=True, timeout=30).stdout


@contextmanager
def agent(socket: Path) -> Iterator[None]:
    """An ssh-agent on a socket."""
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield
        finally:
            started.terminate()


def allow(folder: Path, key: Path, options: str = "", principals: str = ME) -> Path:
    """Write an allowed signers file with one key."""
    file = folder / "allowed_signers"
    file.write_text(f"{principals} {options} {key.with_suffix('.pub').read_text()}")
    return file


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_signed(tmp_path: Path, kind: str):
    """Each kind of key signs, and the file of allowed signers names who did."""
    key = new_key(tmp_path, kind=kind)
    signature = await sign(MESSAGE, key)
    assert await verify(MESSAGE, signature.blob, allow(tmp_path, key)) == ME
    assert signature.fingerprint in run("ssh-keygen", "-l", "-f", str(key)).decode().split()


async def test_other_message(tmp_path: Path):
    """A signature of one message is none of another."""
    key = new_key(tmp_path)
    signature = await sign(MESSAGE, key)
    assert await verify(MESSAGE + b".", signature.blob, allow(tmp_path, key)) is None


async def test_key_in_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A public key signs by the ssh-agent, where a key with a passphrase is."""
    key = new_key(tmp_path)
    socket = tmp_path / "agent"
    with agent(socket):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        run("ssh-add", "-q", str(key))
        public = key.with_suffix(".pub")
        key.rename(tmp_path / "elsewhere")
        signature = await sign(MESSAGE, public)
    assert await verify(MESSAGE, signature.blob, allow(tmp_path, key)) == ME


async def test_passphrase(tmp_path: Path):
    """A passphrase is never asked for: the key has to be in the agent."""
    key = new_key(tmp_path, passphrase="secret")
    with pytest.raises(UsageError, match="ssh-add"):
        await sign(MESSAGE, key)


async def test_key_that_is_none(tmp_path: Path):
    """A file that is no key, or absent, is named."""
    (tmp_path / "key").write_text("no key")
    for name in ("key", "absent"):
        with pytest.raises(UsageError, match=name):
            await sign(MESSAGE, tmp_path / name)


@pytest.mark.parametrize(
    ("options", "is_allowed"),
    [
        (f'namespaces="{NAMESPACE}"', True),
        ('namespaces="git,file"', False),
        ('valid-before="20200101"', False),
        ('valid-after="20990101"', False),
        ('valid-after="20200101",valid-before="20990101"', True),
    ],
)
async def test_options_of_allowed_signers(tmp_path: Path, options: str, is_allowed: bool):
    """Namespaces and periods of the file are kept."""
    key = new_key(tmp_path)
    signature = await sign(MESSAGE, key)
    found = await verify(MESSAGE, signature.blob, allow(tmp_path, key, options))
    assert found == (ME if is_allowed else None)


async def test_time_of_verification(tmp_path: Path):
    """A key that has expired since is valid at the time of a verified time-stamp."""
    key = new_key(tmp_path)
    signature = await sign(MESSAGE, key)
    allowed = allow(tmp_path, key, 'valid-before="20250101"')
    assert await verify(MESSAGE, signature.blob, allowed, at=datetime(2024, 6, 1, tzinfo=UTC)) == ME
    assert await verify(MESSAGE, signature.blob, allowed) is None


async def test_signature_of_another_namespace(tmp_path: Path):
    """What a key signed for git is no signature of a statement."""
    key = new_key(tmp_path)
    armored = run("ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "git", stdin=MESSAGE)
    blob = ssh_signature._from_armor(armored)
    assert await verify(MESSAGE, blob, allow(tmp_path, key)) is None


async def test_certificate_authority(tmp_path: Path):
    """A certificate is accepted for a principal in it that the file allows to its authority."""
    authority, key = new_key(tmp_path, "ca"), new_key(tmp_path)
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "id", "-n", ME, str(key.with_suffix(".pub")))
    signature = await sign(MESSAGE, tmp_path / "key-cert.pub")
    allowed = allow(tmp_path, authority, "cert-authority", "*@example.com")
    assert await verify(MESSAGE, signature.blob, allowed) == ME


@pytest.mark.parametrize("blob", [b"", b"SSHSIG", b"SSHSIG" + b"\xff" * 100, b"x" * 100, b"SSHSIG" * 20_000])
async def test_noise(tmp_path: Path, blob: bytes):
    """Bytes that are no signature are none, whatever they are."""
    assert await verify(MESSAGE, blob, allow(tmp_path, new_key(tmp_path))) is None


async def test_absent_file(tmp_path: Path):
    """An absent file of allowed signers is named."""
    with pytest.raises(UsageError, match="allowed"):
        await verify(MESSAGE, b"SSHSIG", tmp_path / "allowed")


async def test_absent_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without `ssh-keygen` the package that has it is named."""
    monkeypatch.setattr("ringfence.process._SYSTEM_PATH", (str(tmp_path),))
    key = tmp_path / "key"
    key.touch(mode=0o600)
    with pytest.raises(NoSshKeygen, match="openssh-client"):
        await sign(MESSAGE, key)
