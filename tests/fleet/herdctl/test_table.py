"""The page on migrating from herdctl."""

from pathlib import Path

from tests.fleet.herdctl.table import rows

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "migrate-from-herdctl.md"


def test_the_page_says_what_becomes_of_each_key():
    """The table of the page matches the conversion; `python -m tests.fleet.herdctl.table` prints it."""
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert table == rows()
