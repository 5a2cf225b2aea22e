"""Defines the implementor, which writes the code of one story until its tests pass."""

from ringfence.loop.role.base import AuthorRole
from ringfence.loop.rows import StoryRow, code_steps


class Implementor(AuthorRole):
    """The role. Its prompt shows the tests, and the files whose changes would be undone."""

    name = "implementor"
    shown = (
        "story", "criteria", "feedback", "details", "tests", "protected", "plan", "commands", "guides", "files",
    )  # fmt: skip

    def base_of(self, row: StoryRow) -> str | None:
        """Return the commit with the tests of a story."""
        return row.tests_commit

    def steps_of(self, attempt: int) -> list[str]:
        """Return the names of the steps of an attempt at a story's code."""
        return code_steps(attempt)
