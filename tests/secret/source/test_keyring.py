"""A secret in a keyring: the real package in a process of its own, with a back end that keeps entries in a file."""

import os
from pathlib import Path

import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import KnownSecret
from ringfence.secret.source import read_source

_BACK_END = """
import json, os, pathlib, time
from keyring.backend import KeyringBackend
class FileKeyring(KeyringBackend):
    priority = 1
    def get_password(self, service, username):
        entries = json.loads(pathlib.Path(__file__).with_name("entries.json").read_text())
        if service == "locked":
            time.sleep(1000)
        return entries.get(f"{service}/{username}")
    def set_password(self, service, username, password): ...
    def delete_password(self, service, username): ...
"""


@pytest.fixture
def keyring(tmp_path: Path) -> dict[str, str]:
    """An environment in which the keyring is the file's."""
    settings = tmp_path / "config" / "python_keyring"
    settings.mkdir(parents=True)
    (tmp_path / "filekeyring.py").write_text(_BACK_END)
    (tmp_path / "entries.json").write_text('{"claude/me": "hunter2-correct-horse", "-x/-y": "dashes"}')
    (settings / "keyringrc.cfg").write_text(
        f"[backend]\ndefault-keyring=filekeyring.FileKeyring\nkeyring-path={tmp_path}\n"
    )
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}


async def _read(entry: str, environ: dict[str, str], **more: str):
    reference = SecretReference.model_validate({"keyring": entry, **more})
    return (await read_source(KnownSecret("KEY", reference, True), environ)).text


@pytest.mark.parametrize(("entry", "value"), [("claude/me", "hunter2-correct-horse"), ("-x/-y", "dashes")])
async def test_an_entry_is_found(keyring: dict[str, str], entry: str, value: str):
    """By its service and user, whatever they look like."""
    assert await _read(entry, keyring) == value


async def test_an_absent_entry_is_a_clear_error(keyring: dict[str, str]):
    """It names the secret and the entry."""
    with pytest.raises(AuthenticationFailed, match=r"keyring:claude/nobody.*no such entry"):
        await _read("claude/nobody", keyring)


@pytest.mark.slow
async def test_a_locked_keyring_is_not_waited_for(keyring: dict[str, str]):
    """Nobody may be there to unlock it."""
    with pytest.raises(AuthenticationFailed, match="did not end in 3 s"):
        await _read("locked/me", keyring, timeout="3s")


async def test_a_machine_without_a_keyring_is_a_clear_error(keyring: dict[str, str]):
    """As a server is."""
    environ = {**keyring, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    with pytest.raises(AuthenticationFailed, match=r"exited with 1 \('NoKeyringError"):
        await _read("claude/me", environ)
