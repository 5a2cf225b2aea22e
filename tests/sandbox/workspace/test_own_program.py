"""Ringfence itself is out of the agent's reach."""

import sys
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.ownership import check_own_program


def _refusal(place: Path) -> str | None:
    """Why a workspace is refused, if it is."""
    try:
        check_own_program(place)
    except PolicyRefused as exc:
        return str(exc)
    return None


@pytest.mark.parametrize(
    "place", [Path(sys.prefix), Path(sys.prefix).parent, Path(__file__).resolve().parents[3] / "src"]
)
def test_a_workspace_that_holds_our_own_program_is_refused(place: Path):
    """What an agent writes there, the next command would run on the host."""
    assert "ringfence itself runs from" in (_refusal(place) or "")


def test_another_workspace_is_not(tmp_path: Path):
    """An ordinary project."""
    assert _refusal(tmp_path) is None
