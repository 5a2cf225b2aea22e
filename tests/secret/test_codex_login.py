"""A ChatGPT login is read from Codex's `auth.json`, and never written: Codex renews it."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.secret.codex_login import write_login

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import KnownSecret, lease_secret, read_cheaply


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A login that is valid for an hour."""
    write_login(tmp_path / "auth.json", lasts_s=3600)
    return tmp_path / "auth.json"


def _secret(file: Path) -> KnownSecret:
    return KnownSecret("CODEX_AUTH", SecretReference(file=file), True)


def _content(file: Path) -> bytes:
    return file.read_bytes()


def _write(file: Path, text: str) -> None:
    file.write_text(text)


def _tokens(file: Path) -> dict[str, str]:
    found = json.loads(_content(file))["tokens"]
    assert isinstance(found, dict)
    return found


async def test_a_login_gives_its_token_and_account(file: Path, tmp_path: Path):
    """The refresh and the id token are secrets too, and the file stays as it is."""
    before = _content(file)
    async with lease_secret(_secret(file), state=tmp_path / "s") as lease:
        credential = await lease.credential()
        assert (credential.kind, credential.value) == ("oauth", _tokens(file)["access_token"])
        assert credential.account_id == "account-1"
        assert {"refresh-0", "id-0"} < {*lease.values}
    assert _content(file) == before


async def test_an_expired_login_is_refused_with_the_next_step(file: Path, tmp_path: Path):
    """The error shows no token."""
    write_login(file, lasts_s=-60)
    with pytest.raises(AuthenticationFailed, match=r"expired at 20.* UTC; run `codex login`") as refused:
        async with lease_secret(_secret(file), state=tmp_path / "s"):
            pass
    assert not any(token in str(refused.value) for token in _tokens(file).values())


async def test_a_login_that_codex_renewed_meanwhile_is_read_again(file: Path, tmp_path: Path):
    """A long run continues with the token that another program has obtained."""
    write_login(file, lasts_s=120)
    async with lease_secret(_secret(file), state=tmp_path / "s") as lease:
        write_login(file, number=1, lasts_s=3600)
        lease._read_at -= timedelta(minutes=1)
        assert (await lease.current()).text == _tokens(file)["access_token"]
        assert "refresh-1" in lease.values


async def test_a_key_in_the_file_is_a_key(file: Path, tmp_path: Path):
    """`codex login --with-api-key` stores it there; it never expires."""
    _write(file, '{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-hunter2"}')
    async with lease_secret(_secret(file), state=tmp_path / "s") as lease:
        credential = await lease.credential()
        assert (credential.value, credential.kind, credential.expires_at) == ("sk-hunter2", "api_key", None)


async def test_a_copy_for_inside_cannot_be_renewed(file: Path, tmp_path: Path):
    """Everything else is in it, so the program works until the token expires."""
    async with lease_secret(_secret(file), state=tmp_path / "s") as lease:
        copy = json.loads(await lease.login_copy() or b"")
    assert copy.pop("tokens") == {**_tokens(file), "refresh_token": ""}
    original = json.loads(_content(file))
    assert copy == {key: value for key, value in original.items() if key != "tokens"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(
        st.sampled_from(["tokens", "access_token", "OPENAI_API_KEY", "account_id"]), below, max_size=4),
    max_leaves=8))  # fmt: skip
async def test_any_file_is_a_login_or_a_clear_error(tmp_path: Path, document: object):
    """Whatever JSON it contains."""
    file = tmp_path / "any.json"
    file.touch(0o600)
    file.write_text(json.dumps(document))
    try:
        value = await read_cheaply(_secret(file))
        text = value.text if value else ""
    except AuthenticationFailed as exc:
        text = str(exc)
    assert text
