"""Journals with and without a seal."""

from collections.abc import Callable

import pytest

from .conftest import Unpack

Lines = list[bytes]
TAMPERING: dict[str, Callable[[Lines], Lines]] = {
    "truncated": lambda lines: lines[:-1],
    "broken": lambda lines: [line.replace(b"echo sealed", b"echo SEALED") for line in lines],
}
"""Changes to a sealed journal, by the verdict that they must lead to."""


def test_interrupted_journals_are_reported(golden: Unpack):
    """The list names the outcome and the seal of each run; a verification ends with 0 if sealed, else with 3."""
    journals = golden("journals")
    rows = {row["id"]: (row["state"], row["is_sealed"]) for row in journals.run("runs ls", "--json").json}
    assert rows == {
        journals.facts["sealed"]: ("succeeded", True),
        journals.facts["closed"]: ("interrupted", True),
        journals.facts["open"]: ("interrupted", False),
        journals.facts["torn"]: ("interrupted", False),
    }
    for name, code in (("sealed", 0), ("closed", 0), ("open", 3), ("torn", 3)):
        journals.run("runs verify", journals.facts[name], code=code)


@pytest.mark.parametrize("command", ["gc", "exec"])
def test_interrupted_journals_are_closed_by_the_next_command(golden: Unpack, command: str):
    """The command names the runs, removes and records half a line at the end, and seals the journals."""
    journals = golden("journals")
    arguments = ("--mode", "clone", "--", "true") if command == "exec" else ()
    reported = journals.run(command, *arguments).stderr
    assert [name for name in ("open", "torn") if journals.facts[name] not in reported] == []
    journals.run("runs verify", "--all")
    for name, dropped_bytes in (("closed", 0), ("open", 0), ("torn", 58)):
        events = journals.events(journals.facts[name])
        data = {event["event"]: event["data"] for event in events}
        assert data["journal.repaired"]["dropped_bytes"] == dropped_bytes
        assert data["job.ended"]["state"] == "interrupted"
        assert events[-1]["event"] == "journal.sealed"


def test_leases_of_interrupted_runs_are_revoked(golden: Unpack):
    """The next command that lists secrets runs the recorded revocation, once for each lease."""
    journals = golden("journals")
    revoked = journals.root / "revoked.txt"
    before = revoked.read_text().splitlines()
    for _ in range(2):
        journals.run("secrets ls")
    assert len(set(revoked.read_text().splitlines()) - set(before)) == len(("open", "torn"))
    assert len(revoked.read_text().splitlines()) == len(before) + len(("open", "torn"))


def test_changes_of_an_interrupted_run_are_undone(golden: Unpack):
    """Everything that changed in the workspace since the run began counts as its changes."""
    journals = golden("journals")
    assert "+open" in journals.run("diff", journals.facts["open"]).stdout
    journals.run("undo", journals.facts["open"])
    assert not (journals.project / "open.txt").exists()
    assert (journals.project / "closed.txt").exists()


@pytest.mark.parametrize("verdict", TAMPERING)
def test_tampering_with_a_sealed_journal_is_detected(golden: Unpack, verdict: str):
    """Changed lines are detected by their hashes, missing lines by the chain."""
    journals = golden("journals")
    run = journals.facts["sealed"]
    journal = journals.state / "runs" / run / "journal.jsonl"
    journal.write_bytes(b"".join(TAMPERING[verdict](journal.read_bytes().splitlines(keepends=True))))
    assert journals.run("runs verify", run, "--json", code=1).json["status"] == verdict
