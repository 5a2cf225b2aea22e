"""`ringfence config`, `ringfence config trust`, `ringfence init`."""

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from ringfence.cli.app import app
from ringfence.config.model import SandboxSettings
from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.sandbox.spec import SandboxSpec


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, as current directory, in a home of its own."""
    directory = tmp_path / "home" / "project"
    directory.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(directory)
    return directory


def _call(*arguments: str, answer: str = "") -> Result:
    result = CliRunner().invoke(app, arguments, input=answer)
    if isinstance(result.exception, RingfenceError):
        raise result.exception
    return result


def test_show_prints_what_holds_and_why(project: Path) -> None:
    """Each value with its origin, in the notation of the file."""
    (project / "ringfence.yaml").write_text("sandbox:\n  memory: 512m\n")
    lines = _call("config", "show", "--origin").stdout.splitlines()
    assert any(
        line.startswith("sandbox.memory: 512m ") and line.endswith(f"# {project}/ringfence.yaml:2:11")
        for line in lines
    )
    assert any(line.startswith("limits.wall_clock: 30m ") and line.endswith("# default") for line in lines)


def test_show_without_origin_can_be_read_alone(project: Path) -> None:
    """Plain keys and values."""
    assert "sandbox.memory: 2g" in _call("config", "show").stdout.splitlines()


def test_show_as_json_is_data(project: Path) -> None:
    """Values as numbers, origins with their parts, files with their digest."""
    (project / "ringfence.yaml").write_text("limits: {turns: 5}\n")
    shown = json.loads(_call("config", "show", "--json").stdout)
    assert shown["settings"]["limits"]["turns"] == 5
    assert shown["origins"]["limits.turns"] == {
        "kind": "project",
        "file": str(project / "ringfence.yaml"),
        "line": 1,
        "column": 17,
    }
    assert [(file["kind"], file["trusted"]) for file in shown["files"]] == [("project", False)]


@pytest.mark.parametrize("option", ["--json", "--origin"])
def test_show_keeps_secrets(project: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Neither what looks secret by name, nor the values of the environment's secrets."""
    monkeypatch.setenv("MY_TOKEN", "hunter2-in-environment")
    monkeypatch.setenv("RINGFENCE_SANDBOX__ENV__A_TOKEN", "hunter2-by-name")
    monkeypatch.setenv("RINGFENCE_RUN__VERIFY", "curl -H hunter2-in-environment")
    shown = _call("config", "show", option).stdout
    assert "hunter2" not in shown
    assert "[redacted]" in shown


def test_show_escapes_what_a_file_says(project: Path) -> None:
    """A file cannot move the cursor of whoever looks at it."""
    (project / "ringfence.yaml").write_text('sandbox: {protect: ["\\ecevil\\u202e"]}\n')
    assert "\x1b" not in _call("config", "show", "--origin").stdout
    assert "\u202e" not in _call("config", "show", "--origin").stdout


def test_show_of_no_directory_is_wrong_usage(project: Path) -> None:
    """The value is told."""
    with pytest.raises(UsageError, match="'nowhere' is not a directory"):
        _call("config", "show", "-C", "nowhere")


def test_schema_is_json_schema() -> None:
    """It can be given to an editor."""
    schema = json.loads(_call("config", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_trust_shows_digest_and_loosenings_and_asks(project: Path) -> None:
    """Nobody trusts what they were not shown."""
    (project / "ringfence.yaml").write_text("limits:\n  turns: 99\nsecrets: {orders: 'env:ORDERS'}\n")
    result = _call("config", "trust", answer="y\n")
    assert "sha256  " in result.stdout
    smaller = "(without this file: 60; an untrusted file may only set a smaller value)"
    assert f"loosens 2:10 limits.turns = 99 {smaller}\n" in result.stdout
    fixed = "(without this file: not set; an untrusted file may not set or change it)"
    assert f'loosens 3:19 secrets.orders = {{"env": "ORDERS"}} {fixed}\n' in result.stdout
    assert "limits.turns: 99" in _call("config", "show").stdout


def test_trust_that_is_not_confirmed_is_not_given(project: Path) -> None:
    """The answer no leaves everything as it is."""
    (project / "ringfence.yaml").write_text("limits: {turns: 99}\n")
    refused = _call("config", "trust", answer="n\n")
    assert (refused.exit_code, "not trusted" in refused.output) == (1, True)
    with pytest.raises(ConfigurationError, match="only tighten"):
        _call("config", "show")


def test_trust_lists_and_revokes(project: Path) -> None:
    """The user can see and take back what was trusted."""
    file = project / "ringfence.yaml"
    file.write_text("limits: {turns: 99}\n")
    _call("config", "trust", "--yes", str(project))
    assert _call("config", "trust", "--list").stdout.splitlines()[1].startswith("holds ")
    file.write_text("limits: {turns: 98}\n")
    (entry,) = json.loads(_call("config", "trust", "--list", "--json").stdout)["trusted"]
    assert (entry["file"], entry["holds"]) == (str(file), False)
    _call("config", "trust", "--revoke", str(file))
    assert json.loads(_call("config", "trust", "--list", "--json").stdout)["trusted"] == []
    with pytest.raises(UsageError, match="is not trusted"):
        _call("config", "trust", "--revoke", str(file))


@pytest.mark.parametrize(
    "arguments", [["--list", "--revoke"], ["--list", "x"], ["--json"], ["nowhere.yaml"], []], ids=" ".join
)
def test_trust_refuses_what_makes_no_sense(project: Path, arguments: list[str]) -> None:
    """Options that contradict each other, and files that are not there."""
    with pytest.raises(UsageError):
        _call("config", "trust", *arguments)


def test_a_wrong_file_cannot_be_trusted(project: Path) -> None:
    """What cannot be understood cannot be shown."""
    (project / "ringfence.yaml").write_text("sandbox: {memroy: 1g}\n")
    with pytest.raises(ConfigurationError, match="memroy"):
        _call("config", "trust", "--yes")


def test_trust_escapes_what_the_file_says(project: Path) -> None:
    """The question cannot be painted over by what it is about."""
    (project / "ringfence.yaml").write_text('run: {verify: "true \\e[1A\\e[2K\\u202e"}\n')
    shown = _call("config", "trust", "--yes").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_init_writes_a_file_that_loads(project: Path) -> None:
    """What is written changes nothing, and brings its schema."""
    _call("init")
    assert "sandbox.memory: 2g" in _call("config", "show").stdout
    jsonschema.Draft202012Validator.check_schema(json.loads((project / "ringfence.schema.json").read_text()))


@pytest.mark.parametrize("name", ["ringfence.yaml", "ringfence.schema.json"])
def test_init_overwrites_only_when_told(project: Path, name: str) -> None:
    """Nothing is lost, and nothing half-done."""
    (project / name).write_text("mine\n")
    with pytest.raises(UsageError, match="--force"):
        _call("init")
    assert [entry.name for entry in project.iterdir()] == [name]
    _call("init", "--force")
    assert (project / name).read_text() != "mine\n"


def test_init_does_not_write_through_a_link(project: Path, tmp_path: Path) -> None:
    """A hostile repository could have put a link to a shell's start file there."""
    target = tmp_path / "bashrc"
    target.write_text("mine\n")
    (project / "ringfence.yaml").symlink_to(target)
    _call("init", "--force")
    assert target.read_text() == "mine\n"
    assert not (project / "ringfence.yaml").is_symlink()


def test_sandbox_settings_are_the_arguments_of_a_spec() -> None:
    """Whatever is configured fits a spec, with the same defaults; fallback and protection are for others."""
    settings = SandboxSettings.model_validate(dict(SandboxSettings()))
    arguments = settings.spec_arguments()
    del arguments["fallback"], arguments["protect"]
    assert set(arguments) == set(SandboxSpec.model_fields) - {
        "workspace",
        "engine_access",
        "egress",
        "unsafe",
    }
    assert SandboxSpec.model_validate(arguments) == SandboxSpec()


def test_a_file_that_does_not_load_is_not_trusted(project: Path) -> None:
    """It is refused with the place of the wrong value, and no record of trust is made."""
    (project / "ringfence.yaml").write_text("sandbox:\n  backend: bubblewarp\n")
    with pytest.raises(ConfigurationError, match=r"ringfence\.yaml:2:12: .*did you mean 'bubblewrap'"):
        _call("config", "trust", "--yes")
    assert "no file is trusted" in _call("config", "trust", "--list").stderr


def test_a_question_that_nobody_answers_names_the_option(project: Path) -> None:
    """Where standard input has ended, as in a script."""
    (project / "ringfence.yaml").write_text("limits: {turns: 99}\n")
    with pytest.raises(UsageError, match="standard input has ended; add --yes"):
        _call("config", "trust")
    assert "no file is trusted" in _call("config", "trust", "--list").stderr
