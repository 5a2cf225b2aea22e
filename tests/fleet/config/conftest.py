"""Fixtures that write the files of a fleet into a directory of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_fleet

Load = Callable[..., Fleet]


@pytest.fixture(autouse=True)
def _no_user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give these tests a user without a configuration file, unless a test writes one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that writes files by their names and reads the first one."""

    def act(text: str, *, environ: dict[str, str] | None = None, **files: str) -> Fleet:
        for name, content in {"ringfence": text, **files}.items():
            file = tmp_path / "crew" / f"{name.replace('__', '/')}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return load_fleet(tmp_path / "crew" / "ringfence.yaml", environ=environ or {})

    return act
