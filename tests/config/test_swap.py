"""Swaps as configuration says them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ringfence.config import load
from ringfence.config.egress import Egress, Swap
from ringfence.errors import ConfigurationError

GOOD = {"secret": "github", "host": "api.example.com", "env": "GITHUB_TOKEN"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Write the user's file or the project's; where the project is."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    places = {
        "user": tmp_path / "config" / "ringfence" / "ringfence.yaml",
        "project": tmp_path / "project" / "ringfence.yaml",
    }

    def one(kind: str, text: str) -> Path:
        places[kind].parent.mkdir(parents=True, exist_ok=True)
        places[kind].write_text(text)
        return places[kind].parent

    return one


def test_one_spelling():
    """Hosts and headers are compared in one spelling; the usual header is Authorization."""
    swap = Swap.model_validate({**GOOD, "host": "API.Example.com."})
    assert (swap.host, swap.header) == ("api.example.com", "authorization")
    assert Swap.model_validate({**GOOD, "header": "X-Api-Key"}).header == "x-api-key"


@pytest.mark.parametrize(
    "change",
    [
        {"host": "*.example.com"},
        {"host": "https://api.example.com"},
        {"host": "api.example.com:8443"},
        {"host": "10.0.0.1"},
        {"host": "0x7f.1"},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "a.localhost"},
        {"host": ""},
        {"header": "Host"},
        {"header": "content-length"},
        {"header": "Accept-Encoding"},
        {"header": "X Y"},
        {"header": "X-Y\r\nZ"},
        {"env": "A-B"},
        {"env": ""},
        {"secret": ""},
        {"value": "x"},
    ],
    ids=str,
)
def test_refused(change: dict[str, Any]):
    """One full name of a host, a header that holds no framing, a variable's name."""
    with pytest.raises(ValidationError):
        Swap.model_validate({**GOOD, **change})


def test_two_with_one_variable():
    """A variable holds one placeholder."""
    with pytest.raises(ValidationError, match="each needs its own"):
        Egress.model_validate({"swap": [GOOD, {**GOOD, "host": "other.example.com"}]})


def test_an_untrusted_project_adds_no_swap(write: Callable[[str, str], Path]):
    """It could have a credential of yours sent to a host of its own; taking one away is tighter."""
    swap = "{secret: github, host: api.example.com, env: GITHUB_TOKEN}"
    evil = "{secret: github, host: evil.example.com, env: GITHUB_TOKEN}"
    write("user", f"egress: {{swap: [{swap}]}}")
    for said in (evil, f"{swap}, {evil.replace('GITHUB_TOKEN', 'OTHER')}"):
        with pytest.raises(ConfigurationError, match=r"egress\.swap.*may only set fewer swaps"):
            load(write("project", f"egress: {{swap: [{said}]}}"), environ={})
    assert load(write("project", "egress: {swap: []}"), environ={}).settings.egress.swap == ()


def test_it_is_in_the_policy():
    """Whoever prints what holds sees it, without the secret."""
    (line,) = Egress.model_validate({"swap": [GOOD]}).describe()
    assert line == (
        "swap github into authorization for api.example.com, inside $GITHUB_TOKEN is a placeholder"
    )
