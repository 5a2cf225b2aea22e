"""Runs of single commands, on the workspace itself and on a private clone."""

from .conftest import Unpack


def test_a_command_is_shown_with_its_output(golden: Unpack):
    """The list has the outcomes of both runs; the record has output, errors and exit code of the command."""
    runs = golden("execution")
    states = {row["id"]: row["state"] for row in runs.run("runs ls", "--json").json}
    assert states == {runs.facts["bind"]: "failed", runs.facts["clone"]: "succeeded"}
    events = runs.events(runs.facts["bind"])
    (ended,) = (event["data"] for event in events if event["event"] == "command.ended")
    assert (ended["exit_code"], ended["stdout"], ended["stderr"]) == (3, "output\n", "error\n")


def test_changes_of_a_private_clone_are_applied(golden: Unpack):
    """The changed file of the clone is written to the workspace."""
    runs = golden("execution")
    assert "+three" in runs.run("diff", runs.facts["clone"]).stdout
    runs.run("apply", runs.facts["clone"])
    assert (runs.project / "clone.txt").read_text() == "three\n"


def test_changes_of_the_workspace_are_undone(golden: Unpack):
    """Changes of a command that failed can be undone, too."""
    runs = golden("execution")
    runs.run("undo", runs.facts["bind"])
    assert (runs.project / "note.txt").read_text() == "one\n"


def test_old_records_are_removed(golden: Unpack):
    """`gc` removes a record that is old enough; the newest one, which is kept, still verifies and has its changes."""
    runs = golden("execution")
    newest, _ = (row["id"] for row in runs.run("runs ls", "--json").json)
    runs.run("gc", "--older-than", "1ms", "--keep", "1")
    assert [row["id"] for row in runs.run("runs ls", "--json").json] == [newest]
    runs.run("runs verify", newest)
    assert runs.run("diff", newest).stdout
