"""Everything that is wrong with a plan, gathered and told at once."""

from ringfence.config.document import Document, KeyPath
from ringfence.config.validation import combine
from ringfence.errors import ConfigurationError, RingfenceError

_MOST = 200


class Complaints:
    """Gathers what is wrong.

    Args:
        what: What is read, where it is no file: `the planner's answer`.
        document: The file, which knows where each value was written.
    """

    def __init__(self, what: str, document: Document | None = None) -> None:
        self._what = what
        self._document = document
        self._found: list[RingfenceError] = []

    def add(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        """Note what is wrong with the value, or the key, at a path."""
        if len(self._found) >= _MOST:
            return
        if self._document is None:
            self._found.append(ConfigurationError(f"{self._what}: {message}"))
            return
        place = self._document.place(path, of_key=of_key)
        self._found.append(
            ConfigurationError(message, file=self._document.file, line=place.line, column=place.column)
        )

    def raise_any(self) -> None:
        """Raise what was found, if anything.

        Raises:
            ConfigurationError: At the first place; the others follow in its text.
        """
        if self._found:
            raise combine(self._found)
