"""Nothing that version 0.1 promised vanishes without a mark."""

import re

import pytest
from tests.ledger.ledger import DROPPED, FATES, ROOT, misplaced, read_ledger, vanished


def test_no_test_of_version_0_1_vanished_without_a_mark():
    """A test that does not stand where it stood is marked as kept elsewhere, merged or dropped."""
    gone = [row.node for row in vanished(read_ledger())]
    assert gone == [], (
        "mark them: `.venv/bin/python -m tests.ledger mark FATE PLACE PREFIX...` (CONTRIBUTING.md)"
    )


def test_marks_name_tests_that_exist():
    """A promise that is kept elsewhere or merged names the test that makes it now."""
    assert [(row.node, row.place) for row in misplaced(read_ledger())] == []


def test_fates_are_known_and_rows_unique():
    """Each test has one row and one of the four fates."""
    rows = read_ledger()
    assert {row.fate for row in rows} <= set(FATES)
    assert len({row.node for row in rows}) == len(rows) > 3000


@pytest.mark.parametrize("feature", sorted({row.place for row in read_ledger() if row.fate == DROPPED}))
def test_dropped_promises_name_a_removed_feature(feature: str):
    """A feature whose promises were dropped is named in the changelog's list of what was removed."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    removed = re.search(r"^### Removed\n(.*?)(?=^##|\Z)", changelog, re.MULTILINE | re.DOTALL)
    assert removed is not None
    assert feature in removed[1]
