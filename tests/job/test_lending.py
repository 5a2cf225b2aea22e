"""Secrets of a run: told to its record, renewed or warned about before they end, given back whatever happens."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed, ConfigurationError
from ringfence.events import Event, SecretExpiring, SecretLeased, SecretRevoked
from ringfence.job.credentials import concurrent_probe, recorded_leases
from ringfence.secret import KnownSecret, Redactor, lease_secret

pytestmark = pytest.mark.anyio


class Record:
    """Keeps events, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.expiring = anyio.Event()

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, SecretExpiring):
            self.expiring.set()


def _secret(folder: Path, *, lasts: str, **more: Any) -> KnownSecret:
    program = (
        "import json, pathlib, time\n"
        f"file = pathlib.Path({str(folder)!r}, 'count')\n"
        "count = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(count))\n"
        f"print(json.dumps({{'access_token': f'token-number-{{count}}', 'expires_at': time.time() + {lasts}}}))"
    )
    reference = SecretReference.model_validate({"cmd": [sys.executable, "-c", program], **more})
    return KnownSecret("DEPLOY", reference, True)


async def test_a_run_records_what_it_is_lent_and_gives_back(tmp_path: Path):
    """By name and source; what a revocation could not do is in the record, too."""
    record = Record()
    async with (
        lease_secret(_secret(tmp_path, lasts="7200", revoke=["false"]), state=tmp_path / "s") as lease,
        recorded_leases([lease], run="run-1", redactor=Redactor(), emit=record.emit),
    ):
        pass
    granted, revoked = record.events
    assert isinstance(granted, SecretLeased)
    assert isinstance(revoked, SecretRevoked)
    assert (granted.secret, granted.source, granted.lease) == (
        "DEPLOY",
        f"cmd:{sys.executable}",
        revoked.lease,
    )
    assert "exited with 1" in str(revoked.problem)


async def test_a_secret_that_ends_and_cannot_be_renewed_is_warned_of(tmp_path: Path):
    """Once, before it ends."""
    record = Record()
    async with (
        lease_secret(_secret(tmp_path, lasts="60"), state=tmp_path / "s") as lease,
        recorded_leases([lease], run="run-1", redactor=Redactor(), emit=record.emit),
    ):
        with anyio.fail_after(30):
            await record.expiring.wait()
    (warning,) = [event for event in record.events if isinstance(event, SecretExpiring)]
    assert (warning.secret, warning.lease) == ("DEPLOY", lease.id)
    assert isinstance(record.events[-1], SecretRevoked)


async def test_a_secret_that_was_renewed_is_learnt_by_the_redactor(tmp_path: Path):
    """Nobody knew it when the run began."""
    redactor = Redactor()
    async with (
        lease_secret(_secret(tmp_path, lasts="(60 if count == 1 else 7200)"), state=tmp_path / "s") as lease,
        recorded_leases([lease], run="run-1", redactor=redactor, emit=Record().emit),
    ):
        lease._read_at = lease._read_at.replace(year=2000)
        value = await lease.current()
        assert value.text == "token-number-2"
        assert redactor.redact("it is token-number-2!") == "it is [redacted]!"


async def _failing(secret: KnownSecret, state: Path, record: Record) -> None:
    async with (
        lease_secret(secret, state=state) as lease,
        recorded_leases([lease], run="run-1", redactor=Redactor(), emit=record.emit),
    ):
        raise ConfigurationError("wrong")


async def test_what_is_lent_is_given_back_when_the_run_fails(tmp_path: Path):
    """By whatever it fails."""
    record = Record()
    with pytest.RaisesGroup(ConfigurationError):
        await _failing(_secret(tmp_path, lasts="7200"), tmp_path / "s", record)
    assert isinstance(record.events[-1], SecretRevoked)
    assert list((tmp_path / "s" / "leases").iterdir()) == []


async def test_a_check_that_fails_ends_what_it_goes_beside():
    """It need not be waited for."""

    async def check() -> None:
        raise AuthenticationFailed("refused")

    with pytest.raises(BaseExceptionGroup) as raised:
        async with concurrent_probe(check):
            await anyio.sleep_forever()
    assert raised.group_contains(AuthenticationFailed)


async def test_a_check_that_takes_longer_is_waited_for():
    """Nothing is begun before it is over."""
    is_done = False

    async def check() -> None:
        nonlocal is_done
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        is_done = True

    async with concurrent_probe(check) as checked:
        assert not is_done
        await checked()
        assert is_done


async def test_a_body_that_fails_does_not_wait_for_the_check():
    """A server that does not answer keeps nobody who has nothing to ask it."""
    with pytest.raises(BaseExceptionGroup) as raised, anyio.fail_after(5):
        async with concurrent_probe(anyio.sleep_forever):
            raise ConfigurationError("wrong")
    assert raised.group_contains(ConfigurationError)


async def test_a_body_that_ends_does_not_wait_for_the_check():
    """Nor when it ended by itself."""
    with anyio.fail_after(5):
        async with concurrent_probe(anyio.sleep_forever):
            pass
