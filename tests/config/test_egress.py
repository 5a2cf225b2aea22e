"""How rules about what may be reached are written, and that each has one spelling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from ringfence.config import Flag, load
from ringfence.config.egress import Egress, EgressRule
from ringfence.errors import ConfigurationError, UsageError

Write = Callable[[str], Path]

GOOD: dict[str, str] = {
    "packages": "packages",
    "open": "open",
    "Pypi.ORG.": "pypi.org",
    "*.Example.com": "*.example.com",
    "host:8443": "host:8443",
    "10.0.0.5": "10.0.0.5",
    "[fd00::1]:8080": "[fd00::1]:8080",
    "fd00::1": "[fd00::1]",
    "b\u00fccher.example": "xn--bcher-kva.example",
}
BAD: dict[str, str] = {
    "*": "the preset 'open'",
    "*.com": "anybody can register",
    "*.co.uk": "anybody can register",
    "*.*.example.com": "not a pattern",
    "a*.example.com": "not a pattern",
    "*.10.0.0.5": "an address has no names below it",
    "https://pypi.org": "has a scheme; write only the host: 'pypi.org'",
    "pypi.org/simple": "has a path",
    "10.0.0.0/8": "is a network; name its hosts, or its addresses one by one",
    "[fd00::]/8": "is a network",
    "pakages": "did you mean 'packages'",
    "moddel": "did you mean 'model'",
    "pypi.org:0": "a port is a number",
    "pypi.org:65536": "a port is a number",
    "pypi.org:": "a port is a number",
    "127.1": "write it as 127.0.0.1",
    "2130706433": "write it as 127.0.0.1",
    "localhost:80": "use --forward",
    "user@pypi.org": "is not a rule",
    "a b": "is not a rule",
    "": "is not a rule",
}


@pytest.mark.parametrize("text", GOOD)
def test_read(text: str) -> None:
    """Each way of writing a rule has one spelling, which means the same."""
    rule = EgressRule.model_validate(text)
    assert str(rule) == GOOD[text]
    assert EgressRule.model_validate(GOOD[text]) == rule


@pytest.mark.parametrize("text", BAD)
def test_refused(text: str) -> None:
    """What is no rule, opens too much or hides what it opens is refused with a reason."""
    with pytest.raises(ValidationError, match=BAD[text].replace(".", r"\.")):
        Egress(allow=(text,))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "exactly one of `preset` and `host`"),
        ({"preset": "open", "ports": [1]}, "cannot be combined"),
        ({"host": "a.example:80", "ports": [81]}, "names a port, and so does"),
        ({"host": "a.example", "methods": ["CONNECT"]}, "not an HTTP method"),
        ({"host": "a.example", "paths": ["simple"]}, "not a path"),
        ({"host": "a.example", "paths": ["/a/../b"]}, "not a path"),
        ({"host": "a.example", "ports": [True]}, "not a port"),
    ],
    ids=str,
)
def test_mappings_that_are_refused(fields: dict[str, Any], reason: str) -> None:
    """A mapping that contradicts itself, or names what there is not, is refused with a reason."""
    with pytest.raises(ValidationError, match=reason):
        EgressRule.model_validate(fields)


@given(text=st.text(alphabet="ab1.:[]*x%-,/@\u00e9", max_size=30))
@example(text="a.")
def test_any_text(text: str) -> None:
    """Any text is a rule that survives being written down and read again, or is refused."""
    try:
        egress = Egress(allow=(text,))
    except ValidationError:
        return
    assert Egress.model_validate(egress.model_dump(mode="json")) == egress
    assert Egress.model_validate_json(egress.model_dump_json()) == egress


def test_error_has_its_place(project: Path, project_file: Write) -> None:
    """A bad rule in a file is told with line and column."""
    project_file("egress:\n  deny:\n    - pypi.org\n    - 'https://x.example'\n")
    with pytest.raises(ConfigurationError, match="has a scheme") as caught:
        load(project)
    assert (caught.value.line, caught.value.column) == (4, 7)


def test_error_names_its_flag(project: Path) -> None:
    """A bad rule in an option is told with the option."""
    with pytest.raises(UsageError, match=r"--allow: .*did you mean 'packages'"):
        load(project, flags=[Flag("egress.allow", "--allow", ["pakages"])])


def test_open_in_a_file(user_file: Write, project: Path) -> None:
    """A file opens every host only where it says that this is unsafe; and then it is told as a loosening."""
    user_file("egress: {allow: [open]}\n")
    with pytest.raises(ConfigurationError, match=r"unsafe: \[egress\]"):
        load(project)
    user_file("egress: {allow: [open]}\nunsafe: [egress]\n")
    assert "the sandbox can reach every public host" in [what for what, _ in load(project).loosenings()]


def test_open_by_flag(project: Path) -> None:
    """The user may open every host at a call; it is told as a loosening."""
    effective = load(project, flags=[Flag("egress.allow", "--allow", ["open"])])
    assert ("the sandbox can reach every public host", "--allow") in effective.loosenings()


def test_untrusted_file_only_removes(user_file: Write, project: Path, project_file: Write) -> None:
    """A project's file can take rules away and deny hosts, and add none, until it is trusted."""
    user_file("egress: {allow: [packages, a.example], deny: [b.example]}\n")
    project_file("egress: {allow: [a.example], deny: [c.example]}\n")
    egress = load(project).settings.egress
    assert [str(rule) for rule in egress.allow] == ["a.example"]
    assert [str(rule) for rule in egress.deny] == ["b.example", "c.example"]
    project_file("egress: {allow: [packages, evil.example]}\n")
    with pytest.raises(ConfigurationError, match="an untrusted file can only tighten"):
        load(project)


def test_hosts_that_are_allowed_need_no_network(project: Path, user_file: Write) -> None:
    """They are reached through the gate, so `network: none` contradicts no rule."""
    user_file("sandbox: {network: none}\negress: {allow: [model, pypi.org]}\n")
    assert [str(rule) for rule in load(project, environ={}).settings.egress.allow] == ["model", "pypi.org"]


def test_denied_hosts_and_a_network_contradict_each_other(project: Path, user_file: Write) -> None:
    """A network of the engine is reached without the gate; the error names both places."""
    file = user_file("sandbox: {network: bridge}\nunsafe: [network]\negress: {deny: [evil.example]}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(project, environ={})
    assert str(caught.value).startswith(f"{file}:3:16: egress.deny has no effect")
    assert f"{file}:1:20" in str(caught.value)
