"""Runs a storm, as CI does, and tests that its checks notice what is wrong."""

import os
import random
from typing import Any

import pytest
from tests.fleet.chaos import accounts, storm

_SECONDS = float(os.environ.get("TEST_CHAOS_S", "300"))


@pytest.mark.chaos
@pytest.mark.timeout(_SECONDS + 1500)
def test_a_crew_comes_through_a_storm(capsys: pytest.CaptureFixture[str]):
    """Whatever is killed, each job has one end, each record is sealed and verifies, and nothing is left behind."""
    told: list[str] = []

    def log(line: str) -> None:
        told.append(line)
        with capsys.disabled():
            print(line, flush=True)

    wrong = storm.run(_SECONDS, random.SystemRandom().randrange(10**6), log=log)
    assert wrong == [], told


def _books(job: dict[str, Any], *ends: str | None) -> accounts.Books:
    whole = {"id": "j", "ended_ms": 1, "attempt": len(ends), **job}
    attempts = [{"job": "j", "number": number, "state": end} for number, end in enumerate(ends, start=1)]
    return accounts.Books([whole], attempts, 0, 0)


@pytest.mark.parametrize(
    ("job", "ends"),
    [
        ({"state": "running", "ended_ms": None}, ["interrupted", None]),
        ({"state": "succeeded"}, ["succeeded", "succeeded"]),
        ({"state": "succeeded"}, ["interrupted", None]),
        ({"state": "succeeded"}, ["interrupted"]),
        ({"state": "succeeded", "attempt": 2}, ["succeeded"]),
        ({"state": "succeeded", "ended_ms": None}, ["succeeded"]),
    ],
    ids=["no end", "two ends", "an open attempt", "another end", "a lost attempt", "no moment"],
)
def test_the_books_notice(job: dict[str, Any], ends: list[str | None]):
    """A job without exactly one end is reported."""
    assert len(accounts.wrong_ends(_books(job, *ends))) == 1


@pytest.mark.parametrize(
    ("state", "ends"),
    [("unverified", ["interrupted", "unverified"]), ("cancelled", ["unverified"]), ("cancelled", [])],
    ids=["tried again", "cancelled meanwhile", "cancelled in the queue"],
)
def test_the_books_are_content(state: str, ends: list[str]):
    """A job whose attempts agree with its end is not reported."""
    assert accounts.wrong_ends(_books({"state": state}, *ends)) == []
