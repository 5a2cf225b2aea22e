"""What settings come to for an agent."""

from pathlib import Path

import pytest

from ringfence.config import Flag, load
from ringfence.config.model import Settings
from ringfence.config.paths import user_config_file
from ringfence.errors import ConfigurationError
from ringfence.job.agent import requested_features
from ringfence.job.resolution import agent_request, options_of, read_schema
from ringfence.job.resumed_run import ResumedRun


def test_an_output_schema_is_read(tmp_path: Path) -> None:
    """From the file that is named."""
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    assert read_schema(file) == {"type": "object"}


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"a": ', "[" * 100_000], ids=["none", "empty", "list", "torn", "deep"]
)
def test_what_is_no_output_schema_is_refused_before_anything_begins(tmp_path: Path, text: str | None) -> None:
    """With the file, and what is wrong with it."""
    file = tmp_path / "schema.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"the output schema '.*schema\.json'"):
        read_schema(file)


def test_every_setting_of_a_client_reaches_it() -> None:
    """Under the name that the option has there."""
    settings = Settings.model_validate(
        {
            "run": {"system_prompt": "a", "system_append": "b"},
            "tools": {"allow": ["Read"], "deny": ["Bash"]},
            "client": {
                "path": "/bin/claude",
                "args": ["-x"],
                "permission_mode": "plan",
                "plugins": ["/plugin"],
                "settings_sources": ["project"],
                "idle_timeout": "5m",
                "force": True,
            },
        }
    )
    assert options_of(settings).model_dump(exclude_defaults=True) == {
        "system_prompt": "a",
        "system_append": "b",
        "tools_allowed": ("Read",),
        "tools_denied": ("Bash",),
        "permission_mode": "plan",
        "plugins": (Path("/plugin"),),
        "settings_sources": ("project",),
        "cli_path": Path("/bin/claude"),
        "cli_args": ("-x",),
        "idle_timeout_s": 300.0,
        "force": True,
    }


def test_what_a_file_says_of_clients_is_no_matter_without_one(tmp_path: Path) -> None:
    """The section may stand in your own file; what is typed for this run is not passed over."""
    file = user_config_file()
    file.parent.mkdir(parents=True)
    file.write_text("client:\n  idle_timeout: 10m\n")
    assert requested_features(agent_request("x", load(tmp_path), ResumedRun())) == []
    typed = [Flag("client.force", "--force", True)]
    assert requested_features(agent_request("x", load(tmp_path, flags=typed), ResumedRun())) == ["force"]
    client = [Flag("run.runtime", "--runtime", "claude-cli")]
    assert requested_features(agent_request("x", load(tmp_path, flags=client), ResumedRun())) == [
        "idle_timeout_s"
    ]
