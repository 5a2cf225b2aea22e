"""Records of standing sandboxes."""

import pytest

from .conftest import Unpack


def test_the_record_of_a_removed_sandbox_is_read(golden: Unpack):
    """The record is one run with every command in it, and can be undone."""
    sandboxes = golden("sandboxes")
    run = sandboxes.facts["removed"]
    events = sandboxes.events(run)
    (command,) = (event["data"] for event in events if event["event"] == "command.ended")
    assert (command["exit_code"], command["stdout"]) == (0, "output\n")
    assert events[-1]["event"] == "journal.sealed"
    sandboxes.run("undo", run)
    assert (sandboxes.project / "note.txt").read_text() == "one\n"


@pytest.mark.slow
def test_a_sandbox_without_a_process_is_closed(golden: Unpack):
    """The next command reports it by its name and seals its record; name and workspace can be used again."""
    sandboxes = golden("sandboxes")
    run = sandboxes.facts["open"]
    listed = sandboxes.run("sandbox ls", "--json")
    assert listed.json == []
    assert run in listed.stderr
    assert "'open'" in listed.stderr
    events = sandboxes.events(run)
    assert [event["data"]["state"] for event in events if event["event"] == "job.ended"] == ["interrupted"]
    assert events[-1]["event"] == "journal.sealed"
    try:
        sandboxes.run("sandbox create", "open", "--workspace", sandboxes.root / "other")
        assert sandboxes.run("sandbox exec", "open", "--", "cat", "three.txt").stdout == "three\n"
    finally:
        sandboxes.run("sandbox rm", "open")
