"""The implementor: builds one story until its tests pass."""

from ringfence.loop.role.base import AuthorRole
from ringfence.loop.rows import StoryRow, code_steps


class Implementor(AuthorRole):
    """The role. It is shown the tests, and what it changes in vain."""

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
