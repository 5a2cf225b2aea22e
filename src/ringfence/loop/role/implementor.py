"""The implementor: builds one story until its tests pass."""

from ringfence.loop.role.base import AuthorRole


class Implementor(AuthorRole):
    """The role. It is shown the tests, and what it changes in vain."""

    name = "implementor"
    shown = (
        "story", "criteria", "feedback", "details", "tests", "protected", "plan", "commands", "guides", "files",
    )  # fmt: skip
