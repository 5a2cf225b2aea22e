"""Why a program of somebody else's failed: tables of what it is known to write, and what to do about each.

A module of its own, since the tables of bubblewrap, of container engines and of image builds are searched in one way.
"""

import re
from collections.abc import Iterable

from ringfence.frozen import frozen


@frozen
class Cause:
    """One row: what the program says, and what to do about it."""

    name: str
    said: str
    """A pattern of its words, whatever their case."""
    advice: str


def find_cause(said: str, causes: Iterable[Cause]) -> Cause | None:
    """The first row whose pattern is in a text; None if none is."""
    return next((one for one in causes if re.search(one.said, said, re.IGNORECASE | re.DOTALL)), None)
