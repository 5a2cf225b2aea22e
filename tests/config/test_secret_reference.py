"""References to secrets: what can be written, and that nothing quotes what may be the secret itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ringfence.config import Effective, Flag, load
from ringfence.config.secret_reference import SOURCES, SecretReference, holds_a_secret
from ringfence.errors import ConfigurationError

SECRET = "hunter2-correct-horse"
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.sampled_from([*SOURCES, "identity", "ttl", "revoke", "x"]), below, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("written", "kind", "shown"),
    [
        ("env:MY_KEY", "env", "env:MY_KEY"),
        ("file:/run/secrets/key", "file", "file:/run/secrets/key"),
        ("file:~/.key", "file", "file:~/.key"),
        ("keyring:claude/me@work", "keyring", "keyring:claude/me@work"),
        ({"cmd": ["op", "read", "op://v/i/f"], "ttl": "1h"}, "cmd", "cmd:op"),
        ({"age": "/s.age", "identity": "~/id"}, "age", "age:/s.age"),
    ],
)
def test_each_source_can_be_named(written: Any, kind: str, shown: str):
    """As text where one word says it; its text shows no argument of a command."""
    found = SecretReference.model_validate(written)
    assert (found.kind, str(found)) == (kind, shown)


@given(
    st.sampled_from(["env:A", "file:/a/b", "keyring:s/u", {"cmd": ["/bin/x", "y"]}, {"env": "B"}]),
    st.integers(1, 10**6),
)
def test_what_is_recorded_of_a_reference_is_the_reference(written: Any, ttl_s: int):
    """The journal's configuration can be read again."""
    found = SecretReference.model_validate(written)
    found = SecretReference.model_validate({**found.model_dump(mode="json"), "ttl": ttl_s})
    assert SecretReference.model_validate(json.loads(json.dumps(found.model_dump(mode="json")))) == found


@given(ANY_JSON)
def test_anything_is_a_reference_or_a_clear_error(written: Any):
    """Never another exception, whatever a file holds; a reference names exactly one source."""
    try:
        found = SecretReference.model_validate(written)
    except ValidationError:
        return
    assert sum(getattr(found, source) is not None for source in SOURCES) == 1


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        f"cmd:echo {SECRET}",
        f"age:/{SECRET}",
        f"env:{SECRET}",
        f"file:{SECRET}",
        f"file:/a/../{SECRET}",
        f"keyring:{SECRET}",
        {"cmd": SECRET},
        {"cmd": []},
        {"cmd": [SECRET, f"{SECRET}\0"]},
        {"env": "A", "file": f"/{SECRET}"},
        {"age": f"/{SECRET}"},
        {"env": SECRET},
        [SECRET],
        1234567890123,
        None,
        {},
    ],
    ids=str,
)
def test_what_is_no_reference_is_refused_and_not_quoted(written: Any, write: Callable[..., Path]):
    """It may be the secret, put where the reference belongs; place and name are enough to find it."""
    write("user", json.dumps({"secrets": {"GITHUB": written}}))
    with pytest.raises(ConfigurationError, match=r"ringfence\.yaml:1:\d+: secrets\.GITHUB") as refused:
        load(None, environ={})
    message = str(refused.value)
    assert SECRET not in message
    assert "1234567890123" not in message


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnopqrstuv",
        "sk-ant-oat01-abcdefghijklmnopqrstuv",
        "sk-proj-abcdefghijklmnopqrstuv",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "xoxb-1234567890-abc",
    ],
)
@pytest.mark.parametrize("where", ["value", "key", "list"])
def test_a_plain_secret_anywhere_in_a_file_is_refused(write: Callable[..., Path], secret: str, where: str):
    """With its place and without itself: a file of settings is copied, committed and recorded."""
    said: Any = {
        "value": {"sandbox": {"env": {"X": f"a {secret}"}}},
        "key": {"secrets": {secret: "env:A"}},
        "list": {"sandbox": {"setup": ["true", f"login {secret}"]}},
    }[where]
    write("user", json.dumps(said))
    with pytest.raises(ConfigurationError, match=r"ringfence\.yaml:1:\d+: .*plain text") as refused:
        load(None, environ={})
    assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn",
        "ghp_short",
        "eyJ",
        "task-ant-hill-is-a-very-long-name",
        "AKIAIOSFODNN7EXAMPLEX",
        "risk-ant-abcdefghijklmnopqrstuv",
    ],
)
def test_ordinary_words_are_no_secrets(text: str):
    """Only forms that their issuers document."""
    assert not holds_a_secret(text)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the user's file, or a project's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def put(whose: str, text: str) -> Path:
        file = tmp_path / ("config/ringfence" if whose == "user" else "project") / "ringfence.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file.parent

    return put


@pytest.mark.parametrize(
    "said",
    [
        "secrets: {NEW: {cmd: [/bin/touch, /tmp/x]}}",
        "secrets: {MINE: {cmd: [/bin/touch, /tmp/x]}}",
        "secrets: {MINE: 'env:OTHER'}",
        "{auth: inject, unsafe: [auth_inject]}",
    ],
)
def test_an_untrusted_project_adds_and_changes_no_secret(write: Callable[..., Path], said: str):
    """A source's command runs on the host, and another variable is another secret."""
    write("user", "secrets: {MINE: 'env:A'}")
    with pytest.raises(ConfigurationError, match=r"an untrusted file may (not|only) set"):
        load(write("project", said), environ={})


def test_injecting_in_a_file_is_spelled_as_a_loosening(write: Callable[..., Path]):
    """Without it the file is refused."""
    write("user", "auth: inject")
    with pytest.raises(ConfigurationError, match=r"unsafe: \[auth_inject\]"):
        load(None, environ={})


def _loosened(effective: Effective) -> list[str]:
    return [what for what, _ in effective.loosenings()]


def test_injecting_is_told_as_a_loosening(write: Callable[..., Path]):
    """From a file and from a flag; without it nothing is."""
    write("user", "{auth: inject, unsafe: [auth_inject]}")
    assert any("auth: inject" in what for what in _loosened(load(None, environ={})))
    write("user", "")
    flag = Flag("auth", "--auth", "inject")
    assert any("auth: inject" in what for what in _loosened(load(None, environ={}, flags=[flag])))
    assert _loosened(load(None, environ={})) == []
