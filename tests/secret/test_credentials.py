"""Which credentials there are, and which one is used."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import (
    Credential,
    Provider,
    credential_of,
    environment_secrets,
    known_secrets,
    lease_secret,
    looks_secret,
)


async def _credential(
    environ: Mapping[str, str],
    state: Path,
    *,
    provider: Provider = "anthropic",
    references: Mapping[str, str] | None = None,
) -> Credential:
    configured = {name: SecretReference.model_validate(text) for name, text in (references or {}).items()}
    secret = credential_of(
        provider, known_secrets(configured, {"HOME": "/nonexistent", "CODEX_HOME": "/none", **environ})
    )
    async with lease_secret(secret, state=state, environ=environ) as lease:
        return await lease.credential()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file with a key."""
    (tmp_path / "key").write_text("sk-123\n")
    (tmp_path / "key").chmod(0o600)
    return tmp_path / "key"


@pytest.mark.parametrize(
    ("name", "provider", "kind"),
    [
        ("ANTHROPIC_API_KEY", "anthropic", "api_key"),
        ("ANTHROPIC_AUTH_TOKEN", "anthropic", "bearer"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "anthropic", "oauth"),
        ("OPENAI_API_KEY", "openai", "api_key"),
        ("CODEX_API_KEY", "openai", "api_key"),
    ],
)
async def test_each_variable_gives_its_kind(
    name: str, provider: Provider, kind: str, key: Path, tmp_path: Path
) -> None:
    """As a value and as a file."""
    for environ in ({name: " sk-123\n"}, {f"{name}_FILE": str(key)}):
        found = await _credential(environ, tmp_path, provider=provider)
        assert (found.kind, found.value, found.provider) == (kind, "sk-123", provider)
        assert found.source.startswith(name)


async def test_the_key_comes_before_tokens(tmp_path: Path) -> None:
    """The order is that of the table."""
    environ = {"CLAUDE_CODE_OAUTH_TOKEN": "c", "ANTHROPIC_AUTH_TOKEN": "b", "ANTHROPIC_API_KEY": "a"}
    assert (await _credential(environ, tmp_path)).value == "a"


async def test_what_is_configured_comes_first(tmp_path: Path) -> None:
    """It was said for ringfence; a variable is there for every program."""
    environ = {"ANTHROPIC_API_KEY": "a", "MINE": "m"}
    references = {"CLAUDE_CODE_OAUTH_TOKEN": "env:MINE"}
    assert (await _credential(environ, tmp_path, references=references)).value == "m"


async def test_each_provider_has_variables_of_its_own(tmp_path: Path) -> None:
    """A key of OpenAI's is not sent to Anthropic's API, nor the other way."""
    environ = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    assert (await _credential(environ, tmp_path, provider="anthropic")).value == "a"
    assert (await _credential(environ, tmp_path, provider="openai")).value == "o"


def test_no_text_of_a_credential_shows_it() -> None:
    """Not even in a traceback that prints its variables."""
    credential = Credential("api_key", "sk-hunter2", "ANTHROPIC_API_KEY")
    assert "hunter2" not in f"{credential} {credential!r} {[credential]}"


@pytest.mark.parametrize("environ", [{}, {"ANTHROPIC_API_KEY": " "}, {"ANTHROPIC_API_KEY_FILE": ""}])
def test_without_one_the_three_ways_are_named(environ: dict[str, str]) -> None:
    """Whoever has none learns how to give one."""
    with pytest.raises(AuthenticationFailed) as caught:
        credential_of("anthropic", known_secrets({}, environ))
    text = str(caught.value)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "_FILE", "secrets:"):
        assert name in text


def test_without_one_of_openai_its_ways_are_named(tmp_path: Path) -> None:
    """A key, in two variables, or the login of the Codex CLI."""
    ways = r"OPENAI_API_KEY.*CODEX_API_KEY.*codex login.*CODEX_HOME.*NAME_FILE=PATH.*secrets:.*scripted:FILE"
    with pytest.raises(AuthenticationFailed, match=ways):
        credential_of("openai", known_secrets({}, {"CODEX_HOME": str(tmp_path)}))


@pytest.mark.parametrize("value", ["sk-hunter2\r\nX-Evil: 1", "sk hunter2", "sk-hunter2é", "sk-hunter2\x7f"])
async def test_what_no_header_can_carry_is_refused_without_showing_it(value: str, tmp_path: Path) -> None:
    """A line end in a header would forge another."""
    with pytest.raises(AuthenticationFailed, match="ANTHROPIC_API_KEY") as caught:
        await _credential({"ANTHROPIC_API_KEY": value}, tmp_path)
    assert "hunter2" not in str(caught.value)


def test_value_and_file_together_are_refused(tmp_path: Path) -> None:
    """It is not guessed which was meant."""
    with pytest.raises(AuthenticationFailed, match="unset one"):
        known_secrets({}, {"ANTHROPIC_API_KEY": "a", "ANTHROPIC_API_KEY_FILE": str(tmp_path)})


def test_a_login_in_a_variable_is_refused() -> None:
    """It is renewed where it lies, and a variable is no such place."""
    with pytest.raises(AuthenticationFailed, match="set CODEX_AUTH_FILE"):
        known_secrets({}, {"CODEX_AUTH": "{}"})


def test_the_login_of_codex_is_found_where_codex_keeps_it(tmp_path: Path) -> None:
    """And comes after keys."""
    (tmp_path / "auth.json").write_text("{}")
    environ = {"CODEX_HOME": str(tmp_path)}
    found = credential_of("openai", known_secrets({}, environ))
    assert (found.name, found.reference.file) == ("CODEX_AUTH", tmp_path / "auth.json")
    assert (
        credential_of("openai", known_secrets({}, {**environ, "OPENAI_API_KEY": "o"})).name
        == "OPENAI_API_KEY"
    )


async def test_a_login_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """A command could print one, and nobody would write down its successor."""
    references = {"CODEX_AUTH": "env:MINE"}
    with pytest.raises(AuthenticationFailed, match=r"write file:/PATH/auth\.json"):
        await _credential({"MINE": "{}"}, tmp_path, provider="openai", references=references)


@pytest.mark.parametrize(
    "name",
    ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYSQL_PWD",
     "npm_authtoken", "OPENAI_APIKEY", "GH_PAT", "GOOGLE_CREDENTIALS"],
)  # fmt: skip
def test_secret_names_are_known(name: str) -> None:
    """By their words or their end."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "SSH_AUTH_SOCK", "ANTHROPIC_API_KEY_FILE", "KEYMAP", "HOME", "MONKEY_BARS", "PATIENCE"],
)
def test_other_names_are_let_be(name: str) -> None:
    """Redacting a path or a layout would spoil every record."""
    assert not looks_secret(name)


def test_secrets_of_the_environment_are_found() -> None:
    """By name, and as password in a URL, as it stands and decoded."""
    environ = {
        "A_TOKEN": "t0ken-t0ken",
        "DATABASE_URL": "postgres://me:p%40ss@db/x",
        "HOME": "/h",
        "B_KEY": "",
    }
    assert environment_secrets(environ) == ("p%40ss", "p@ss", "t0ken-t0ken")
