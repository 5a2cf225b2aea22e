"""Programs that fail for lack of a network do not know of `--allow`; ringfence does."""

from collections.abc import Callable
from typing import Any

import pytest

from ringfence.cli.render.egress import HINT, lacks_network

Cli = Callable[..., Any]

SAID = {
    "curl 7.88.1": "curl: (6) Could not resolve host: example.org",
    "curl 7.88.1, an address": "curl: (7) Failed to connect to 93.184.215.14 port 443 after 68 ms: Couldn't connect",
    "wget 1.21.3": "wget: unable to resolve host address \u2018example.org\u2019",
    "git 2.39.5": "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
    "npm 9.2.0": "npm ERR! request to https://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN x",
    "node 20": "  [cause]: Error: getaddrinfo EAI_AGAIN example.org",
    "python 3.11": "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    "ssh 9.2": "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
}  # fmt: skip
"""As each said it in a sandbox without a grant."""


@pytest.mark.parametrize("program", SAID)
def test_programs_without_a_network_are_understood(program: str) -> None:
    """By their own words."""
    assert lacks_network(f"some line\n{SAID[program]}\n")


@pytest.mark.parametrize(
    "words",
    ["", "AssertionError: 1 != 2", "curl: (22) The requested URL returned error: 404", "connection refused"],
)
def test_other_failures_are_others(words: str) -> None:
    """Nobody is sent looking for a network."""
    assert not lacks_network(words)


@pytest.mark.slow
def test_a_command_without_a_network_is_told_how_to_get_one(start: Cli, workspace: Any) -> None:
    """If it failed, and for that; not where hosts are granted, whose refusals are told one by one."""
    ask = "curl -sS --noproxy '*' https://example.org"

    def told(command: str, *options: str) -> tuple[int, bool]:
        process = start("exec", "-C", workspace, *options, "--", "sh", "-c", command)
        _, err = process.communicate(timeout=60)
        return process.returncode, f"ringfence: {HINT}\n" in err.decode()

    assert told(ask) == (6, True)
    assert told(f"{ask}; true") == (0, False)
    assert told("exit 6") == (6, False)
    assert told(ask, "--allow", "other.example") == (6, False)
