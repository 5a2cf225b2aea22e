"""Defines the test writer, which writes the tests of one story before its code is written."""

from ringfence.loop.role.base import AuthorRole
from ringfence.loop.rows import StoryRow, tests_steps


class TestWriter(AuthorRole):
    """The role. Its prompt shows no attempt at the code."""

    name = "test_writer"
    shown = ("story", "criteria", "feedback", "details", "plan", "commands", "guides", "files")

    def base_of(self, row: StoryRow) -> str | None:
        """Return the commit at which a story was started."""
        return row.base

    def steps_of(self, attempt: int) -> list[str]:
        """Return the names of the steps of an attempt at a story's tests."""
        return tests_steps(attempt)
