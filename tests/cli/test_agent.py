"""What settings come to for an agent."""

from pathlib import Path

import pytest

from ringfence.cli.agent import options_of, read_schema
from ringfence.config.model import Settings
from ringfence.errors import ConfigurationError


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
