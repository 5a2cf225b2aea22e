"""Where the credential comes from."""

import os
from pathlib import Path

import pytest

from ringfence.errors import AuthenticationFailed
from ringfence.secret import Credential, environment_secrets, looks_secret, resolve_credential


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ANTHROPIC_API_KEY", "api_key"),
        ("ANTHROPIC_AUTH_TOKEN", "bearer"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "oauth"),
    ],
)
def test_each_variable_gives_its_kind(name: str, kind: str, tmp_path: Path) -> None:
    """As a value and as a file."""
    (tmp_path / "key").write_text("sk-123\n")
    assert resolve_credential({name: " sk-123\n"}) == Credential(kind, "sk-123", name)  # type: ignore[arg-type]
    found = resolve_credential({f"{name}_FILE": str(tmp_path / "key")})
    assert (found.kind, found.value, found.source) == (kind, "sk-123", f"{name}_FILE")


def test_the_key_comes_before_tokens() -> None:
    """The order is that of the table."""
    environ = {"CLAUDE_CODE_OAUTH_TOKEN": "c", "ANTHROPIC_AUTH_TOKEN": "b", "ANTHROPIC_API_KEY": "a"}
    assert resolve_credential(environ).value == "a"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "CODEX_API_KEY"])
def test_each_provider_has_variables_of_its_own(name: str) -> None:
    """A key of OpenAI's is not sent to Anthropic's API, nor the other way."""
    environ = {"ANTHROPIC_API_KEY": "a", name: "o"}
    assert [resolve_credential(environ, provider=one).value for one in ("anthropic", "openai")] == ["a", "o"]


def test_no_text_of_a_credential_shows_it() -> None:
    """Not even in a traceback that prints its variables."""
    credential = Credential("api_key", "sk-hunter2", "ANTHROPIC_API_KEY")
    assert "hunter2" not in f"{credential} {credential!r} {[credential]}"


@pytest.mark.parametrize("environ", [{}, {"ANTHROPIC_API_KEY": " "}, {"ANTHROPIC_API_KEY_FILE": ""}])
def test_without_one_the_three_ways_are_named(environ: dict[str, str]) -> None:
    """Whoever has none learns how to give one."""
    with pytest.raises(AuthenticationFailed) as caught:
        resolve_credential(environ)
    text = str(caught.value)
    assert all(
        name in text
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "_FILE")
    )


@pytest.mark.parametrize("value", ["sk-hunter2\r\nX-Evil: 1", "sk hunter2", "sk-hunter2é", "sk-hunter2\x7f"])
def test_what_no_header_can_carry_is_refused_without_showing_it(value: str) -> None:
    """A line end in a header would forge another."""
    with pytest.raises(AuthenticationFailed, match="ANTHROPIC_API_KEY") as caught:
        resolve_credential({"ANTHROPIC_API_KEY": value})
    assert "hunter2" not in str(caught.value)


def test_value_and_file_together_are_refused(tmp_path: Path) -> None:
    """It is not guessed which was meant."""
    with pytest.raises(AuthenticationFailed, match="unset one"):
        resolve_credential({"ANTHROPIC_API_KEY": "a", "ANTHROPIC_API_KEY_FILE": str(tmp_path)})


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "empty", "big"])
def test_a_bad_file_is_a_clear_error(tmp_path: Path, kind: str) -> None:
    """Never a wait, never a traceback."""
    file = tmp_path / "key"
    match kind:
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "empty":
            file.write_text("\n")
        case "big":
            file.write_text("x" * 70_000)
    with pytest.raises(AuthenticationFailed, match=r"ANTHROPIC_API_KEY_FILE=.*key"):
        resolve_credential({"ANTHROPIC_API_KEY_FILE": str(file)})


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
