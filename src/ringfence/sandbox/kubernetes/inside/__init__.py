"""Programs that run in a pod, each sent as text on the command line of `python3`, 3.9 or newer.

They import the standard library only. `program` returns the text of one.
"""

from functools import cache
from importlib import resources


@cache
def program(name: str) -> str:
    """The text of a program of this package."""
    return (resources.files(__name__) / f"{name}.py").read_text("utf-8")
