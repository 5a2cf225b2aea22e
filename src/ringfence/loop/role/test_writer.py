"""The test writer: writes the tests of one story, before anybody builds it."""

from ringfence.loop.role.base import AuthorRole


class TestWriter(AuthorRole):
    """The role. It is shown no attempt at the code."""

    name = "test_writer"
    shown = ("story", "criteria", "feedback", "details", "plan", "commands", "guides", "files")
