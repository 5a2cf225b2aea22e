"""Secrets by name, leases while runs have them, and credentials put inside only where that is asked for."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.secret.codex_login import write_login

from ringfence.config.paths import state_dir, user_config_file
from ringfence.job.store import JobStore

Cli = Callable[..., Any]
SECRET = "hunter2-correct-horse-battery"
LOOK = (
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -r hunter2 ~ /run /tmp /etc 2>/dev/null; true"
)


@pytest.fixture
def configure() -> Callable[[Any], None]:
    """Write the user's settings."""

    def write(settings: Any) -> None:
        user_config_file().parent.mkdir(parents=True, exist_ok=True)
        user_config_file().write_text(json.dumps(settings))

    return write


def test_ls_tells_names_sources_and_ends(
    ringfence: Cli, configure: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """For people and for programs; no program is run for it, and no value shown."""
    write_login(tmp_path / "auth.json", lasts_s=3600)
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    touched = tmp_path / "touched"
    configure(
        {
            "secrets": {
                "github": "env:GITHUB_TOKEN",
                "deploy": {"cmd": ["touch", str(touched)]},
                "gone": "env:NONE",
            }
        }
    )
    ended = ringfence("config", "secrets", "ls", "--json")
    rows = {row["name"]: row for row in json.loads(ended.out)["secrets"]}
    assert {name: row["source"] for name, row in rows.items()} == {
        "github": "env:GITHUB_TOKEN",
        "deploy": "cmd:touch",
        "gone": "env:NONE",
        "CODEX_AUTH": f"file:{tmp_path / 'auth.json'}",
    }
    assert rows["CODEX_AUTH"]["expires_at"].endswith("+00:00")
    assert "not set" in rows["gone"]["problem"]
    assert rows["github"]["said_by"].endswith(":1:24")
    shown = ringfence("config", "secrets", "ls").out
    assert all(name in shown for name in rows)
    assert (SECRET in ended.out + shown, touched.exists()) == (False, False)


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ({"cmd": ["echo", SECRET], "ttl": "1h"}, 0, "it can be resolved, expires 20"),
        ({"cmd": ["false"]}, 77, "exited with 1"),
        ({"cmd": ["no-such-program"]}, 75, "install it"),
        ({"cmd": ["echo", SECRET], "revoke": ["false"]}, 0, "could not be revoked"),
    ],
    ids=["good", "fails", "absent", "not revoked"],
)
def test_test_says_whether_a_secret_can_be_had(
    ringfence: Cli, configure: Cli, reference: Any, code: int, said: str
):
    """By its exit code, and in a line without the secret."""
    configure({"secrets": {"deploy": reference}})
    ended = ringfence("config", "secrets", "test", "deploy")
    assert (ended.code, said in ended.out + ended.err) == (code, True)
    assert SECRET not in ended.out + ended.err
    assert list((state_dir() / "leases").iterdir()) == []


def test_test_of_a_name_that_is_not_known_lists_those_that_are(ringfence: Cli, configure: Cli):
    """A wrong name is wrong usage."""
    configure({"secrets": {"deploy": "env:X"}})
    ended = ringfence("config", "secrets", "test", "depoly")
    assert (ended.code, "known: deploy" in ended.err) == (2, True)


def test_a_file_that_others_can_read_is_told(ringfence: Cli, configure: Cli, tmp_path: Path):
    """Where it is and what to do."""
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "key").chmod(0o644)
    configure({"secrets": {"deploy": f"file:{tmp_path / 'key'}"}})
    ended = ringfence("config", "secrets", "test", "deploy")
    assert (ended.code, "WARNING: other users can read" in ended.err) == (0, True)


@pytest.fixture
def held(start: Cli, workspace: Path, configure: Cli, tmp_path: Path) -> "subprocess.Popen[bytes]":
    """A run that is lent a secret, and tells when it has it."""
    configure(
        {
            "auth": "inject",
            "unsafe": ["auth_inject"],
            "secrets": {
                "ANTHROPIC_API_KEY": {
                    "cmd": ["echo", SECRET],
                    "ttl": "2h",
                    "revoke": [
                        "sh",
                        "-c",
                        f"cat > {tmp_path}/revoked; echo ' {{lease}}' >> {tmp_path}/revoked",
                    ],
                }
            },
        }
    )
    process: subprocess.Popen[bytes] = start(
        "exec", "-C", workspace, "--", "sh", "-c", "echo has $ANTHROPIC_API_KEY; exec sleep 1000"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"has {SECRET}\n".encode()
    return process


@pytest.mark.slow
def test_a_lease_is_listed_with_its_run_and_revoked_at_its_end(
    ringfence: Cli, held: "subprocess.Popen[bytes]", events: Cli, tmp_path: Path
):
    """Its end is in the record before the record is closed."""
    (lease,) = json.loads(ringfence("config", "secrets", "ls", "--json").out)["leases"]
    (run,) = [job.id for job in JobStore().unfinished()]
    assert (lease["name"], lease["source"], lease["run"]) == ("ANTHROPIC_API_KEY", "cmd:echo", run)
    assert lease["expires_at"] > lease["granted_at"]
    assert run in ringfence("config", "secrets", "ls").out
    held.send_signal(signal.SIGINT)
    held.communicate(timeout=60)
    assert (tmp_path / "revoked").read_text() == f"{SECRET} {lease['id']}\n"
    assert json.loads(ringfence("config", "secrets", "ls", "--json").out)["leases"] == []
    told = [event["event"] for event in events()]
    assert told.index("secret.leased") < told.index("sandbox.created") < told.index("secret.revoked")
    assert told[-3:] == ["job.ended", "files.recorded", "journal.sealed"]


@pytest.mark.slow
def test_what_a_killed_run_was_lent_is_revoked_when_somebody_looks(
    ringfence: Cli, held: "subprocess.Popen[bytes]", tmp_path: Path
):
    """It cannot give back its lease itself, and the value went with it."""
    (lease,) = json.loads(ringfence("config", "secrets", "ls", "--json").out)["leases"]
    held.kill()
    held.communicate()
    assert json.loads(ringfence("config", "secrets", "ls", "--json").out)["leases"] == []
    assert (tmp_path / "revoked").read_text() == f" {lease['id']}\n"


@pytest.mark.slow
def test_by_default_no_credential_is_inside(
    start: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Neither in an environment nor on a command line nor in a file, for a command as for an agent."""
    write_login(tmp_path / "auth.json", lasts_s=3600)
    token = json.loads((tmp_path / "auth.json").read_text())["tokens"]["access_token"]
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"{SECRET}-{name}")
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    process = start("exec", "-C", workspace, "--", "sh", "-c", LOOK)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"HOME=" in out
    assert (SECRET.encode() in out, token.encode() in out) == (False, False)


@pytest.mark.slow
def test_by_default_an_agent_finds_no_credential(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, monkeypatch: pytest.MonkeyPatch, events: Cli
):
    """What its tools see is in the record; there, a value would be replaced, so only its absence is looked for."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    probe = "env | grep -c ANTHROPIC; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c ANTHROPIC_API_KEY; true"
    ended = ringfence("run", "x", "-C", workspace, "--model", script(says("look", probe), says("bye")))
    (result,) = [event["data"]["content"] for event in events() if event["event"] == "tool.returned"]
    assert (ended.code, json.loads(result)["stdout"]) == (9, "0\n0\n")


@pytest.mark.slow
def test_injecting_is_possible_told_and_recorded(
    start: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, events: Cli
):
    """By name on the command line; the values are inside and in no record."""
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}-2")
    process = start(
        "exec",
        "-C",
        workspace,
        "--auth",
        "inject",
        "--",
        "printenv",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "OPENAI_API_KEY",
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.decode().split()) == (0, [SECRET, f"{SECRET}-2"])
    assert b"WARNING: the models' credentials are in the sandbox" in err
    told = [event["data"]["what"] for event in events() if event["event"] == "policy.loosened"]
    assert "CLAUDE_CODE_OAUTH_TOKEN is inside as $CLAUDE_CODE_OAUTH_TOKEN" in told
    assert "OPENAI_API_KEY is inside as $OPENAI_API_KEY" in told
    assert SECRET not in json.dumps(events())


@pytest.mark.slow
def test_a_login_is_injected_as_a_file_that_cannot_be_renewed(
    start: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Renewed inside, it would be dead outside; its owner alone reads it."""
    write_login(tmp_path / "auth.json", lasts_s=3600)
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    command = ("sh", "-c", "stat -c %a ~/.codex/auth.json; cat ~/.codex/auth.json")
    process = start("exec", "-C", workspace, "--auth", "inject", "--", *command)
    out, _ = process.communicate(timeout=60)
    mode, _, document = out.partition(b"\n")
    tokens = json.loads((tmp_path / "auth.json").read_text())["tokens"]
    assert (mode, json.loads(document)["tokens"]) == (b"600", {**tokens, "refresh_token": ""})


@pytest.mark.slow
def test_a_check_has_no_credential_inside(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, monkeypatch: pytest.MonkeyPatch
):
    """It runs what the agent made, and the agent is gone."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    verify = 'test -z "$ANTHROPIC_API_KEY"'
    ended = ringfence(
        "run",
        "x",
        "-C",
        workspace,
        "--auth",
        "inject",
        "--verify",
        verify,
        "--model",
        script(says("look", 'test -n "$ANTHROPIC_API_KEY"'), says()),
    )
    assert ended.code == 0, ended.out


def test_injecting_without_a_credential_names_the_ways(ringfence: Cli, workspace: Path):
    """As where a model needs one."""
    ended = ringfence("exec", "-C", workspace, "--auth", "inject", "--", "true")
    assert (ended.code, "claude setup-token" in ended.err) == (77, True)


@pytest.mark.slow
def test_nothing_is_injected_on_the_bare_host(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """A login's file would take the place of the user's own."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    ended = ringfence("exec", "-C", workspace, "--sandbox", "host", "--auth", "inject", "--", "true")
    assert (ended.code, "auth: inject is refused on the bare host" in ended.err) == (4, True)


def test_nothing_is_injected_into_a_standing_sandbox(
    ringfence: Cli, workspace: Path, configure: Cli, monkeypatch: pytest.MonkeyPatch
):
    """It would hold them for as long as it stands."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    configure({"auth": "inject", "unsafe": ["auth_inject"]})
    ended = ringfence("sandbox", "create", "box", "-C", workspace)
    assert (ended.code, "auth: inject is for single runs" in ended.err) == (4, True)


@pytest.mark.slow
def test_a_standing_sandbox_is_lent_the_models_credential_while_it_stands(
    ringfence: Cli, workspace: Path, configure: Cli, tmp_path: Path
):
    """By its holder, which outlives the command that made it; it is revoked when the sandbox is removed."""
    revoke = [sys.executable, "-c", f"open({str(tmp_path / 'revoked')!r}, 'w').write(input())"]
    configure({"secrets": {"ANTHROPIC_API_KEY": {"cmd": ["echo", SECRET], "revoke": revoke}}})
    made = ringfence("sandbox", "create", "box", "-C", workspace, "--allow", "model")
    assert made.code == 0, made.err
    (lease,) = json.loads(ringfence("config", "secrets", "ls", "--json").out)["leases"]
    assert (lease["name"], bool(lease["run"]), (tmp_path / "revoked").exists()) == (
        "ANTHROPIC_API_KEY",
        True,
        False,
    )
    assert ringfence("sandbox", "rm", "box").code == 0
    assert (tmp_path / "revoked").read_text() == SECRET


@pytest.mark.slow
def test_doctor_tells_of_a_credential_that_ends_soon(
    ringfence: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Before a run fails for it."""
    write_login(tmp_path / "auth.json", lasts_s=3600)
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    ended = ringfence("doctor")
    assert "CODEX_AUTH" in ended.out
    assert "EXPIRES SOON" in ended.out


@pytest.mark.slow
def test_a_wrong_configuration_does_not_stop_doctor(ringfence: Cli, configure: Cli):
    """It is asked about the machine; it tells all the same."""
    configure({"secrets": {"deploy": SECRET}})
    ended = ringfence("doctor")
    assert "bubblewrap" in ended.out
    assert "secrets.deploy" in ended.out
    assert SECRET not in ended.out + ended.err
