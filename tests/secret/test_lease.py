"""Leases: in the book while their holder lives, renewed before they end, revoked when they are over."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cases import slow_after

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import KnownSecret, Lease, active_leases, lease_secret, lease_secrets, revoke_abandoned

SECRET = "hunter2-correct-horse"
HOLD = """
import sys, anyio
from pathlib import Path
from ringfence.config.secret_reference import SecretReference
from ringfence.secret import KnownSecret, lease_secret
async def main():
    reference = SecretReference(cmd=("printf", "%s", "hunter2-correct-horse"), revoke=("touch", sys.argv[2]))
    async with lease_secret(KnownSecret("DEPLOY", reference, True), state=Path(sys.argv[1]), run="run-1"):
        print("held", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def _secret(reference: Any, name: str = "DEPLOY") -> KnownSecret:
    return KnownSecret(name, SecretReference.model_validate(reference), True)


async def test_a_lease_is_in_the_book_without_its_value(tmp_path: Path):
    """Its name, source, end and run; and only while it lasts."""
    secret = _secret({"cmd": ["printf", "%s", SECRET], "ttl": "1h"})
    async with lease_secret(secret, state=tmp_path, run="run-1") as lease:
        (record,) = active_leases(tmp_path)
        assert (record.id, record.name, record.source, record.run) == (
            lease.id,
            "DEPLOY",
            "cmd:printf",
            "run-1",
        )
        assert record.expires_at == pytest.approx(
            (datetime.now(UTC) + timedelta(hours=1)).timestamp(), abs=60
        )
        assert SECRET not in _everything_in(tmp_path)
        await revoke_abandoned(tmp_path, pytest.fail)
        assert [one.id for one in active_leases(tmp_path)] == [lease.id]
    assert (active_leases(tmp_path), list((tmp_path / "leases").iterdir())) == ([], [])


def _everything_in(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.rglob("*") if file.is_file())


async def test_the_book_is_the_users_alone(tmp_path: Path):
    """Which secrets somebody has is nobody's business."""
    async with lease_secret(_secret({"cmd": ["printf", "x"]}), state=tmp_path):
        (file,) = _files(tmp_path)
        assert [oct(_mode(one)) for one in (file.parent, file)] == ["0o700", "0o600"]


def _mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def _files(state: Path) -> list[Path]:
    return list((state / "leases").iterdir())


async def test_a_later_record_replaces_an_earlier_whole(tmp_path: Path):
    """Longer or shorter than it: whoever reads meanwhile reads one of them."""
    async with lease_secret(_secret({"cmd": ["printf", "x"]}), state=tmp_path) as lease:
        for run in ("a-very-long-name-of-a-run" * 9, "short"):
            lease.assign(run, on_values=print)
            assert [record.run for record in active_leases(tmp_path)] == [run]


async def test_a_lease_is_revoked_with_its_value_as_input(tmp_path: Path):
    """Never on a command line, where everybody could read it; and once."""
    script = f'cat > {tmp_path}/told; echo "$0" >> {tmp_path}/told'
    secret = _secret({"cmd": ["printf", "%s", SECRET], "revoke": ["sh", "-c", script, "{lease}"]})
    async with lease_secret(secret, state=tmp_path / "state") as lease:
        assert await lease.release() is None
        assert _everything_in(tmp_path) == f"{SECRET}{lease.id}\n"
    assert _everything_in(tmp_path) == f"{SECRET}{lease.id}\n"


async def test_a_released_secret_is_gone(tmp_path: Path):
    """Neither value nor credential can be had of it."""
    async with lease_secret(
        _secret({"cmd": ["printf", "%s", SECRET]}, "ANTHROPIC_API_KEY"), state=tmp_path
    ) as lease:
        await lease.release()
        assert lease.values == ()
        with pytest.raises(AuthenticationFailed, match="was released"):
            await lease.credential()


@pytest.mark.parametrize(
    ("command", "said"),
    slow_after(
        1,
        [
            (["false"], "exited with 1"),
            (["sleep", "1000"], "did not end in time"),
            (["no-such-program"], "install it"),
        ],
    ),
)
async def test_a_revocation_that_fails_is_told(tmp_path: Path, command: list[str], said: str):
    """The run is over all the same, and somebody must see to it."""
    secret = _secret({"cmd": ["printf", "%s", SECRET], "revoke": command, "timeout": "1s"})
    async with lease_secret(secret, state=tmp_path) as lease:
        problem = await lease.release()
    assert said in str(problem)
    assert SECRET not in str(problem)


@pytest.mark.slow
async def test_what_a_killed_run_was_lent_is_revoked_by_the_next(tmp_path: Path):
    """Its entry's lock is free, which no living holder's is."""
    holder = _holding(tmp_path)
    assert [record.pid for record in active_leases(tmp_path)] == [holder.pid]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert active_leases(tmp_path) == []
    await revoke_abandoned(tmp_path, pytest.fail)
    assert {one.name for one in _all(tmp_path)} == {"leases", "revoked"}


def _holding(state: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, str(state), str(state / "revoked")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def _all(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_a_damaged_entry_is_cleared(tmp_path: Path):
    """Nobody holds it, and it says nothing that could be revoked."""
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "x.json").write_text("{")
    await revoke_abandoned(tmp_path, pytest.fail)
    assert (active_leases(tmp_path), _files(tmp_path)) == ([], [])


def _counting(folder: Path, *, ends: str) -> dict[str, Any]:
    """A command that gives a new token each time."""
    program = (
        "import json, pathlib, sys, time\n"
        f"file = pathlib.Path({str(folder)!r}, 'count')\n"
        "count = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(count))\n"
        f"print(json.dumps({{'access_token': f'token-{{count}}', 'expires_at': time.time() + {ends}}}))"
    )
    return {"cmd": [sys.executable, "-c", program]}


async def test_a_secret_that_is_about_to_end_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """So that a long run does not fail for a short lease; all its values are learnt for redaction."""
    seen: list[tuple[str, ...]] = []
    async with lease_secret(
        _secret(_counting(tmp_path, ends="(60 if count == 1 else 7200)")), state=tmp_path / "s"
    ) as lease:
        lease.assign("run-1", on_values=seen.append)
        _let_ask(lease)
        assert [(await lease.current()).text for _ in range(3)] == ["token-2"] * 3
    assert seen == [("token-2",)]


def _let_ask(lease: Lease) -> None:
    """As if the last time were a while ago."""
    lease._read_at -= timedelta(minutes=1)


async def test_a_source_that_fails_while_the_secret_is_good_does_not_matter(tmp_path: Path):
    """It is asked again at the next request."""
    reference = _counting(tmp_path, ends="(60 if count == 1 else 1/0)")
    async with lease_secret(_secret(reference), state=tmp_path / "s") as lease:
        _let_ask(lease)
        assert (await lease.current()).text == "token-1"


async def test_a_secret_that_has_ended_is_refused(tmp_path: Path):
    """Before anything is begun with it; the error says when it ended."""
    with pytest.raises(AuthenticationFailed, match=r"expired at 20\d\d-\d\d-\d\d .*renew it"):
        async with lease_secret(_secret(_counting(tmp_path, ends="-60")), state=tmp_path / "s"):
            pass
    assert _files(tmp_path / "s") == []


async def test_of_several_those_that_can_be_had_are_lent(tmp_path: Path):
    """A login that has ended keeps nobody from asking another provider; it is told."""
    told: list[str] = []
    secrets = [
        _secret({"cmd": ["false"]}, "CODEX_API_KEY"),
        _secret({"cmd": ["printf", "x"]}, "ANTHROPIC_API_KEY"),
    ]
    async with lease_secrets(secrets, state=tmp_path, warn=told.append) as leases:
        assert list(leases) == ["ANTHROPIC_API_KEY"]
    assert len(told) == 1
    assert "'CODEX_API_KEY' (cmd:false) exited with 1" in told[0]


@pytest.mark.parametrize("needed", [["DEPLOY"], []])
async def test_without_a_needed_one_or_any_nothing_is_lent(tmp_path: Path, needed: list[str]):
    """What goes without it would fail later."""
    secrets = [_secret({"cmd": ["false"]})]
    if needed:
        secrets.append(_secret({"cmd": ["printf", "x"]}, "OTHER"))
    with pytest.raises(AuthenticationFailed, match="'DEPLOY'"):
        async with lease_secrets(secrets, state=tmp_path, warn=print, required=needed):
            pass


async def test_a_name_that_is_no_credential_gives_none(tmp_path: Path):
    """A deploy key is not sent to a model."""
    async with lease_secret(_secret({"cmd": ["printf", "x"]}), state=tmp_path) as lease:
        with pytest.raises(AuthenticationFailed, match="not a model credential"):
            await lease.credential()


async def test_a_login_file_of_claude_gives_its_token_and_end(tmp_path: Path):
    """The file of the CLI, named as the source of its token."""
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    login = {"accessToken": "sk-hunter2", "refreshToken": "r-hunter2", "expiresAt": ends.timestamp() * 1000}
    file = tmp_path / "credentials.json"
    file.touch(0o600)
    _write(file, json.dumps({"claudeAiOauth": login}))
    async with lease_secret(_secret(f"file:{file}", "CLAUDE_CODE_OAUTH_TOKEN"), state=tmp_path) as lease:
        credential = await lease.credential()
        assert (credential.value, credential.kind, credential.expires_at) == ("sk-hunter2", "oauth", ends)
        assert lease.values == ("sk-hunter2", "r-hunter2")


def _write(file: Path, text: str) -> None:
    file.write_text(text)
