"""The records of every case, apart from their workspaces."""

import json

import pytest

from .cases import case_names
from .conftest import Unpack


@pytest.mark.parametrize("case", case_names())
def test_records_verify_in_another_directory(relocated: Unpack, case: str):
    """Each record is sealed, or has an open end where its process was killed; none is broken or missing."""
    state = relocated(case)
    journals = [path.read_text().splitlines() for path in state.state.glob("runs/*/journal.jsonl")]
    ends = ["sealed" if _is_seal(lines[-1]) else "open" for lines in journals]
    verdicts = state.run("runs verify", "--all", "--json", code=3 if "open" in ends else 0).json["runs"]
    assert sorted(verdict["status"] for verdict in verdicts) == sorted(ends)


def _is_seal(line: str) -> bool:
    try:
        return bool(json.loads(line)["event"] == "journal.sealed")
    except json.JSONDecodeError:
        return False
