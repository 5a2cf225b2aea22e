"""Ringfence itself is out of the agent's reach."""

import sys
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.ownership import check_own_program


@pytest.mark.parametrize(
    "place", [Path(sys.prefix), Path(sys.prefix).parent, Path(__file__).resolve().parents[3] / "src"]
)
def test_a_workspace_that_holds_our_own_program_is_refused(place: Path):
    """What an agent writes there, the next command would run on the host."""
    with pytest.raises(PolicyRefused, match="ringfence itself runs from"):
        check_own_program(place)


def test_another_workspace_is_not(tmp_path: Path):
    """An ordinary project."""
    check_own_program(tmp_path)
