"""A home, a user file and a project for configuration tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.config.paths import user_config_file


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project in a home of its own."""
    home = tmp_path / "home"
    directory = home / "code" / "project"
    directory.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return directory


@pytest.fixture
def project_file(project: Path) -> Callable[[str], Path]:
    """Writes the project's file."""

    def write(text: str) -> Path:
        file = project / "ringfence.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def user_file() -> Callable[[str], Path]:
    """Writes the user's file."""

    def write(text: str) -> Path:
        file = user_config_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write
