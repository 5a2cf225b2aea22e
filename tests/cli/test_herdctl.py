"""`ringfence fleet import`, and the other commands on a fleet of herdctl's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Ended

Run = Callable[..., Ended]


@pytest.fixture
def herd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet of herdctl's in the current directory, in a home of its own."""
    directory = tmp_path / "home" / "herd"
    directory.mkdir(parents=True)
    for variable, name in (("HOME", "home"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.chdir(directory)
    (directory / "herdctl.yaml").write_text(
        "fleet: {name: crew}\nfleets: [{path: low}]\nagents: [{path: a.yaml}]\nweb: {enabled: true}\n"
    )
    (directory / "a.yaml").write_text("name: a\nmodel: ${MODEL:-m}\n")
    (directory / "low").mkdir()
    (directory / "low" / "herdctl.yaml").write_text("agents: [{path: b.yaml}]\n")
    (directory / "low" / "b.yaml").write_text("name: b\n")
    return directory


def test_import_writes_a_crew(ringfence: Run, herd: Path):
    """The files are named on stdout, what does not come over on stderr with its place; they are valid."""
    ended = ringfence("fleet", "import", "herdctl.yaml")
    assert ended.code == 0
    assert ended.out.splitlines() == [str(herd / "ringfence.yaml"), str(herd / "ringfence.low.yaml")]
    assert f"ringfence: {herd}/herdctl.yaml:4:6: web: left out: " in ended.err
    ended = ringfence("fleet", "validate", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["fleet"], found["agents"], found["notes"]) == ("crew", ["a", "low.b"], [])


def test_import_tells_programs(ringfence: Run, herd: Path):
    """`--json` has the files and each key with its place; `--output` says where."""
    ended = ringfence("fleet", "import", "herdctl.yaml", "--output", "crew.yaml", "--json")
    found = json.loads(ended.out)
    assert found["written"] == [str(herd / "crew.yaml"), str(herd / "crew.low.yaml")]
    places = {
        (note["key"], note["kind"], note["file"], note["line"], note["column"]) for note in found["notes"]
    }
    assert places == {
        ("web", "left_out", str(herd / "herdctl.yaml"), 4, 6),
        ("session.timeout", "changed", str(herd / "herdctl.yaml"), 1, 1),
        ("session.timeout", "changed", str(herd / "low" / "herdctl.yaml"), 1, 1),
    }
    assert found["unset"] == []


@pytest.mark.parametrize("name", ["ringfence.yaml", "ringfence.low.yaml"])
def test_import_overwrites_only_when_told(ringfence: Run, herd: Path, name: str):
    """A file in the way of any of those that would be written stays, and none is written; a link is never followed."""
    elsewhere = herd.parent / "elsewhere"
    elsewhere.write_text("mine")
    (herd / name).symlink_to(elsewhere)
    ended = ringfence("fleet", "import", "herdctl.yaml")
    assert ended.code == 2
    assert "exists already; overwrite it with --force" in ended.err
    assert len(list(herd.glob("ringfence*"))) == 1
    assert ringfence("fleet", "import", "herdctl.yaml", "--force").code == 0
    assert elsewhere.read_text() == "mine"
    assert not (herd / name).is_symlink()


@pytest.mark.parametrize("output", ["herdctl.yaml", "low/herdctl.yaml", "a.yaml", "elsewhere/herdctl.yml"])
def test_import_never_writes_over_herdctls_files(ringfence: Run, herd: Path, output: str):
    """What was read stays, also with `--force`, and no file of ours takes a name that means herdctl's."""
    before = (herd / "a.yaml").read_text(), (herd / "herdctl.yaml").read_text()
    ended = ringfence("fleet", "import", "herdctl.yaml", "--force", "-o", output)
    assert ended.code == 2
    assert "is one of herdctl's own files" in ended.err
    assert ((herd / "a.yaml").read_text(), (herd / "herdctl.yaml").read_text()) == before


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        ("a.yaml", 2, "is not a herdctl fleet"),
        ("nowhere.yaml", 2, "cannot be read"),
        ("low", 2, "is a directory"),
    ],
)
def test_import_of_something_else_is_refused(ringfence: Run, herd: Path, file: str, code: int, message: str):
    """What is no fleet is refused, and nothing is written."""
    ended = ringfence("fleet", "import", file)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert list(herd.glob("ringfence*")) == []


def test_import_checks_before_it_writes(ringfence: Run, herd: Path):
    """A value that no agent could have is told at its place in herdctl's file, and nothing is written."""
    (herd / "low" / "b.yaml").write_text("name: b\nmax_turns: lots\n")
    ended = ringfence("fleet", "import", "herdctl.yaml")
    assert ended.code == 78
    assert f"{herd}/low/b.yaml:2:12: agents.low.b.limits.turns: 'lots'" in ended.err
    assert list(herd.glob("ringfence*")) == []


def test_import_leaves_variables_that_are_not_set(ringfence: Run, herd: Path):
    """Variables are the crew's matter when it starts; that they could not be checked is told."""
    (herd / "a.yaml").write_text("name: a\nmodel: ${NOT_SET}\n")
    ended = ringfence("fleet", "import", "herdctl.yaml", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["unset"] == ["NOT_SET"]
    assert "the converted fleet was not validated, because these variables are not set: NOT_SET" in ended.err
    assert "model: ${NOT_SET}" in (herd / "ringfence.yaml").read_text()


def test_show_says_which_line_of_herdctls(ringfence: Run, herd: Path):
    """Each value of an agent is told with the line of herdctl's file that says it."""
    ended = ringfence("fleet", "show", "--file", "herdctl.yaml", "--agent", "a", "--origin")
    assert f'agents.a.run.model: "m"  # {herd}/a.yaml:2:8' in ended.out


def test_trust_takes_the_whole_fleet(ringfence: Run, herd: Path):
    """One command trusts every file that the fleet reads; a change of any of them ends that."""
    assert (
        len(json.loads(ringfence("fleet", "validate", "--file", "herdctl.yaml", "--json").out)["untrusted"])
        == 4
    )
    ended = ringfence("config", "trust", "herdctl.yaml", "--yes")
    assert ended.code == 0
    assert [line.split()[1] for line in ended.out.splitlines() if line.startswith("file")] == [
        str(herd / name) for name in ("herdctl.yaml", "a.yaml", "low/herdctl.yaml", "low/b.yaml")
    ]
    assert (
        json.loads(ringfence("fleet", "validate", "--file", "herdctl.yaml", "--json").out)["untrusted"] == []
    )
    (herd / "low" / "b.yaml").write_text("name: b\ndescription: other\n")
    ended = ringfence("fleet", "up", "--detach", "--file", "herdctl.yaml")
    assert ended.code == 4
    assert f"run `ringfence config trust {herd}/herdctl.yaml`" in ended.err


def test_trust_takes_the_files_that_a_fleet_includes(ringfence: Run, herd: Path):
    """One command trusts a ringfence.yaml with all that it includes, and shows each with what it loosens."""
    (herd / "ringfence.yaml").write_text(
        "fleet: {name: f}\nagents: {own: {prompt: x}}\ninclude: [{file: ../team/team.yaml}, {file: herdctl.yaml}]\n"
    )
    team = herd.parent / "team"
    team.mkdir()
    (team / "team.yaml").write_text("fleet: {name: team}\nlimits: {turns: 99}\nagents: {a: {prompt: x}}\n")
    ended = ringfence("config", "trust", "--yes")
    assert ended.code == 0
    shown = [Path(line.split()[1]).resolve() for line in ended.out.splitlines() if line.startswith("file")]
    assert sorted(shown) == sorted(
        herd.joinpath(name).resolve()
        for name in (
            "ringfence.yaml",
            "../team/team.yaml",
            "herdctl.yaml",
            "a.yaml",
            "low/herdctl.yaml",
            "low/b.yaml",
        )
    )
    assert "loosens 2:17 limits.turns" in ended.out
    ended = ringfence("fleet", "validate", "--json")
    assert json.loads(ended.out)["untrusted"] == [], ended.err
    (team / "team.yaml").write_text("fleet: {name: team}\nagents: {a: {prompt: y}}\n")
    ended = ringfence("fleet", "up", "--detach")
    assert (ended.code, "team.yaml'; a fleet works unattended" in ended.err) == (4, True)
    assert f"run `ringfence config trust {herd}/ringfence.yaml`" in ended.err
    assert ringfence("config", "trust", "--yes").code == 0
    assert json.loads(ringfence("fleet", "validate", "--json").out)["untrusted"] == []


def test_trust_of_a_fleet_is_asked_for(ringfence: Run, herd: Path):
    """Who does not say yes trusts nothing."""
    assert ringfence("config", "trust", "herdctl.yaml").code != 0
    assert (
        len(json.loads(ringfence("fleet", "validate", "--file", "herdctl.yaml", "--json").out)["untrusted"])
        == 4
    )


@pytest.mark.usefixtures("herd")
def test_up_without_a_file_names_herdctls(ringfence: Run):
    """Where there is only herdctl's file, the two ways to use it are named."""
    ended = ringfence("fleet", "validate")
    assert ended.code == 2
    assert "`ringfence fleet import herdctl.yaml`" in ended.err
