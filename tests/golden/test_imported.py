"""Transcripts of both agent CLIs, and the records that version 0.1 imported from them."""

import json

import pytest

from .conftest import Unpack

each_client = pytest.mark.parametrize("client", ["claude", "codex"])


@each_client
def test_a_transcript_is_listed_and_shown(golden: Unpack, client: str):
    """It is read from the client's own configuration directory."""
    sessions = golden("imported")
    (row,) = sessions.run("session ls", "--client", client, "--json").json
    assert row["session_id"] == sessions.facts[client]["session"]
    assert row["workspace"] == str(sessions.project)
    shown = sessions.run("session show", row["session_id"]).stdout
    assert [text for text in ("Read the note.", "$ cat note.txt", "It says one.") if text not in shown] == []


def test_no_run_continues_an_imported_record(golden: Unpack):
    """What is in a transcript anybody may have written: no model gets it as its own conversation."""
    sessions = golden("imported")
    model = sessions.write_script({"turns": [{"text": "x"}]})
    newest = sessions.run("run", "--model", model, "--continue", "Go on.", code=2)
    assert "there is no run" in newest.stderr
    run = sessions.facts["claude"]["run"]
    named = sessions.run("run", "--model", model, "--resume", run, "Go on.", code=2)
    assert f"run {run!r} was no agent's" in named.stderr


@each_client
def test_an_imported_record_is_read(golden: Unpack, client: str):
    """It is listed as imported, shows its origin, verifies and is exported."""
    sessions = golden("imported")
    run = sessions.facts[client]["run"]
    states = {row["id"]: row["state"] for row in sessions.run("runs ls", "--json").json}
    assert states[run] == "imported"
    (origin,) = (event["data"] for event in sessions.events(run) if event["event"] == "session.imported")
    assert (origin["client"], origin["session_id"]) == (client, sessions.facts[client]["session"])
    assert "sealed" in sessions.run("runs verify", run).stdout
    session = sessions.run("runs export", run).json
    assert session["outcome"]["state"] == "imported"
    assert "It says one." in json.dumps(session["messages"])
