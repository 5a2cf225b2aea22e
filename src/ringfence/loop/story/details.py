"""What a stories' file says of a story in fields that have no meaning here: roles may make something of it."""

from collections.abc import Iterator
from typing import Any

from ringfence.loop.story.model import Story

MOST_CHARS = 8192
"""Of all of them together."""
_FOREIGN = ("x-", "_", "$")
_MOST_NAME = 100


def details(story: Story) -> str:
    """Fields of a story that are text or lists of text, a line or more each; empty: there are none.

    Numbers and yes or no are left out, since they are rarely for who builds it; so are keys that are somebody else's on
    purpose.
    """
    told = "\n".join(_lines(story))
    return told if len(told) <= MOST_CHARS else f"{told[:MOST_CHARS]}\n[cut: {len(told)} characters]"


def _lines(story: Story) -> Iterator[str]:
    for key, value in story.extra.items():
        name = key[:_MOST_NAME]
        if key.startswith(_FOREIGN):
            continue
        if isinstance(value, str) and value.strip():
            yield f"{name}: {value.strip()}"
        elif texts := _texts(value):
            yield "\n- ".join([f"{name}:", *texts])


def _texts(value: Any) -> list[str]:
    """A list of text; empty if it is none."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return []
    return [each.strip() for each in value if each.strip()]
