"""`ringfence config policy show`: what holds, and what may be reached by which rule."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_show_says_what_is_granted(ringfence: Cli) -> None:
    """`config policy show` prints the effective policy with what is granted."""
    ended = ringfence("config", "policy", "show", "--allow", "packages")
    assert (ended.code, "egress:\n  - allow packages\n" in ended.out) == (0, True)


def test_allowed(ringfence: Cli) -> None:
    """What may be reached is told with the rule, and exit code 0."""
    ended = ringfence("config", "policy", "explain", "https://PyPI.org./x", "--allow", "packages")
    assert ended.code == 0
    assert ended.out.startswith("allowed: https://PyPI.org./x, by rule 'packages: pypi.org'\n")


def test_refused(ringfence: Cli) -> None:
    """What may not be reached is told with the rule, the reason and what would allow it, and exit code 4."""
    ended = ringfence("config", "policy", "explain", "http://a.example/", "--method", "POST", "--json")
    assert ended.code == 4
    assert json.loads(ended.out) == {
        "schema_version": 1,
        "url": "http://a.example/",
        "target": "a.example:80",
        "allowed": False,
        "rule": "default",
        "reason": "a.example:80 is not allowed",
        "remedy": "allow it: --allow a.example, or egress.allow in ringfence.yaml",
    }


@pytest.mark.parametrize(
    "url", ["ftp://a.example", "http://", "a b", "https://a.example:0", "http://u@a.example/"]
)
def test_no_address(ringfence: Cli, url: str) -> None:
    """What is no address is wrong usage."""
    ended = ringfence("config", "policy", "explain", url)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("ringfence: ")


def test_expectations(ringfence: Cli, place: Path) -> None:
    """A file of expectations that hold exits with 0, one of which one differs with 3, and the difference is told."""
    file = place / "expected.yaml"
    file.write_text(
        "- {url: 'https://pypi.org/', allowed: true}\n- {url: 'http://a.example/', allowed: false}\n"
    )
    ended = ringfence("config", "policy", "test", file, "--allow", "packages")
    assert (ended.code, ended.out) == (0, "2 of 2 as expected\n")
    ended = ringfence("config", "policy", "test", file)
    assert ended.code == 3
    assert ended.out == (
        "differs: GET https://pypi.org/ should be allowed, is refused: pypi.org:443 is not allowed\n"
        "1 of 2 as expected\n"
    )
    results = json.loads(ringfence("config", "policy", "test", file, "--json").out)["results"]
    assert [row["as_expected"] for row in results] == [False, True]


BAD = {
    "": "1:1: this file must be a list",
    "url: x": "1:1: this file must be a list",
    "- {url: 'https://a.example/'}": "1:3: allowed: field required",
    "- {url: 'https://a.example/', allowed: yes}": "1:3: allowed: input should be a valid boolean",
    "- {url: 'https://a.example/', allowed: true, why: x}": "1:3: why: extra inputs",
    "- {url: 'https://a.example/', allowed: true}\n- {url: 'ftp://x', allowed: true}": "2:3: 'ftp://x' is no address",
    "- {url: [": "this is not YAML",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_expectations(ringfence: Cli, place: Path, text: str) -> None:
    """A file that is no list of expectations is told with its place."""
    (place / "expected.yaml").write_text(text)
    ended = ringfence("config", "policy", "test", "expected.yaml")
    assert ended.code == 78
    assert BAD[text] in ended.err


def test_no_file(ringfence: Cli) -> None:
    """A file that is not there is told."""
    ended = ringfence("config", "policy", "test", "absent.yaml")
    assert ended.code == 2
    assert "absent.yaml" in ended.err
