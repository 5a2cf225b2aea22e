"""A swap, by the command line: what is inside, what is recorded, and what does not start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import slow_after

from ringfence.config.paths import state_dir, user_config_file

Cli = Callable[..., Any]
SECRET = "hunter2-correct-horse-battery"
LOOK = 'echo "<$GITHUB_TOKEN>"; grep -c BEGIN.CERT "$SSL_CERT_FILE"; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"'


@pytest.fixture
def configure() -> Callable[..., None]:
    """Write the user's settings, with a swap."""

    def write(source: Any = None, **egress: Any) -> None:
        swap = [{"secret": "github", "host": "api.example.com", "env": "GITHUB_TOKEN"}]
        settings = {
            "secrets": {"github": source or {"cmd": ["printf", "%s", SECRET]}},
            "egress": {"allow": ["api.example.com"], "swap": swap, **egress},
        }
        user_config_file().parent.mkdir(parents=True, exist_ok=True)
        user_config_file().write_text(json.dumps(settings))

    return write


def _records() -> str:
    return "".join(path.read_text() for path in state_dir().rglob("*.jsonl"))


@pytest.mark.slow
def test_a_placeholder_is_inside_and_the_lease_is_recorded(start: Cli, configure: Cli, workspace: Path):
    """The secret is neither inside nor in the record; whom to trust is inside; the lease ends with the run."""
    configure()
    process = start("exec", "-C", workspace, "--", "sh", "-c", LOOK)
    out, err = (stream.decode() for stream in process.communicate(timeout=60))
    assert process.returncode == 0, err
    assert out.startswith("<ringfence-placeholder-")
    assert int(out.splitlines()[1]) > 1
    assert SECRET not in out + err + _records()
    assert '"secret.leased"' in _records()
    assert '"secret.revoked"' in _records()
    assert "swap github into authorization for api.example.com" in _records()


@pytest.mark.parametrize(
    ("source", "egress", "code", "says"),
    slow_after(
        2,
        [
            ({"cmd": ["false"]}, {}, 77, "exited with 1"),
            ("env:NOT_SET", {}, 77, "is not set"),
            ({"cmd": ["printf", "short"]}, {}, 77, "printable ASCII"),
            (None, {"allow": ["other.example.com"]}, 4, "is not allowed"),
            (
                None,
                {"swap": [{"secret": "x", "host": "a.example.com", "env": "T"}]},
                77,
                "nothing says where it is",
            ),
        ],
    ),
)
def test_what_cannot_be_swapped_does_not_start(
    ringfence: Cli, configure: Cli, workspace: Path, source: Any, egress: Any, code: int, says: str
):
    """No command is run without the secret that it was promised."""
    configure(source, **egress)
    ended = ringfence("exec", "-C", workspace, "--", "touch", "was-run")
    assert (ended.code, says in ended.err, (workspace / "was-run").exists()) == (code, True, False), ended.err


@pytest.mark.slow
def test_a_check_has_no_placeholder(ringfence: Cli, configure: Cli, workspace: Path, script: Cli, says: Cli):
    """It runs what the agent made, which could use the credential once more."""
    configure()
    model = script(says("look", 'test -n "$GITHUB_TOKEN"'), says())
    ended = ringfence("run", "x", "-C", workspace, "--verify", 'test -z "$GITHUB_TOKEN"', "--model", model)
    assert ended.code == 0, ended.out + ended.err


def test_a_standing_sandbox_has_none(ringfence: Cli, configure: Cli, workspace: Path):
    """It would have the secret for as long as it stands."""
    configure()
    ended = ringfence("sandbox", "create", "work", "-C", workspace)
    assert (ended.code, "is for single runs" in ended.err) == (4, True)


@pytest.mark.slow
def test_a_variable_of_ones_own_is_not_covered(ringfence: Cli, configure: Cli, workspace: Path):
    """Said twice is a mistake, and one of both would be the secret."""
    configure()
    ended = ringfence("exec", "-C", workspace, "--env", "GITHUB_TOKEN=mine", "--", "true")
    assert (ended.code, "leave one out" in ended.err) == (4, True)
