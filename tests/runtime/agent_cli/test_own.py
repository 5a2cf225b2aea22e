"""What of a person's own `claude` is shown inside."""

import json
from pathlib import Path

import pytest

from ringfence.runtime.claude.cli import own_files

SECRETS = {
    "env": {"ANTHROPIC_API_KEY": "sk-1"},
    "apiKeyHelper": "cat key",
    "hooks": {"Stop": []},
    "mcpServers": {},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory as `claude` keeps it."""
    for name in ("agents/review.md", "skills/pdf/SKILL.md", "skills/.git/config", "projects/p/s.jsonl", "CLAUDE.md",
                 ".credentials.json", "history.jsonl"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / "settings.json").write_text(json.dumps({"theme": "light", **SECRETS}))
    return tmp_path


def test_how_to_work_is_shown_and_who_one_is_is_not(home: Path):
    """Neither credentials nor history nor sessions."""
    assert set(own_files(home)) == {"CLAUDE.md", "settings.json", "agents/review.md", "skills/pdf/SKILL.md"}


def test_settings_come_without_what_could_be_a_secret_or_start_something(home: Path):
    """What is not known to be harmless is left out."""
    assert json.loads(own_files(home)["settings.json"]) == {"theme": "light"}


@pytest.mark.parametrize("text", ["{", "[]", "\x00", '"x"'])
def test_settings_that_are_none_are_left_out(home: Path, text: str):
    """They are no error: claude itself says what is wrong with them."""
    (home / "settings.json").write_text(text)
    assert "settings.json" not in own_files(home)


def test_what_is_too_large_is_left_out(home: Path):
    """One file, and all of them together."""
    (home / "agents/large.md").write_bytes(b"x" * 300_000)
    for number in range(20):
        (home / f"agents/{number:02}.md").write_bytes(b"x" * 250_000)
    found = own_files(home)
    assert "agents/large.md" not in found
    assert sum(map(len, found.values())) <= 4 * 1024**2


def test_no_directory_is_no_files(tmp_path: Path):
    """There may be none."""
    assert own_files(tmp_path / "none") == {}
