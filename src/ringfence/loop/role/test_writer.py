"""The test writer: writes the tests of one story, before anybody builds it."""

from ringfence.loop.role.base import AuthorRole
from ringfence.loop.rows import StoryRow, tests_steps


class TestWriter(AuthorRole):
    """The role. It is shown no attempt at the code."""

    name = "test_writer"
    shown = ("story", "criteria", "feedback", "details", "plan", "commands", "guides", "files")

    def base_of(self, row: StoryRow) -> str | None:
        """Return the commit at which a story was started."""
        return row.base

    def steps_of(self, attempt: int) -> list[str]:
        """Return the names of the steps of an attempt at a story's tests."""
        return tests_steps(attempt)
