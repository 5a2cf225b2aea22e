"""What tests of stories share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.loop.story import Plan, read_plan

DIALECTS = Path(__file__).parent / "dialects"


@pytest.fixture
def dialects() -> Path:
    """Where a file of each dialect lies."""
    return DIALECTS


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of stories."""

    def write(content: Any, name: str = "prd.json") -> Path:
        file = tmp_path / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


@pytest.fixture
def plan_of(written: Callable[..., Path]) -> Callable[..., Plan]:
    """Writes stories to a file, completed by what each needs, and reads it."""

    def read(*stories: dict[str, Any], **beside: Any) -> Plan:
        whole = [{"title": "T", "description": "D", "acceptance_criteria": ["C"], **each} for each in stories]
        return read_plan(written({"title": "Plan", "stories": whole, **beside}))

    return read
