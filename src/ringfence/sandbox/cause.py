"""Finds the cause of a foreign program's failure in a table of messages that it is known to write, with advice.

The tables themselves belong to bubblewrap, to container engines and to image builds, which all search them this way.
"""

import re
from collections.abc import Iterable

from ringfence.frozen import frozen


@frozen
class Cause:
    """One row of a table: a pattern of the program's message, and what to do about it."""

    name: str
    said: str
    """A regular expression for the message; case does not matter."""
    advice: str


def find_cause(said: str, causes: Iterable[Cause]) -> Cause | None:
    """The first row whose pattern matches in a text; None if there is none."""
    return next((one for one in causes if re.search(one.said, said, re.IGNORECASE | re.DOTALL)), None)
