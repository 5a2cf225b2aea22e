"""Elements of HTML: text becomes part of a page only escaped, and nothing that it says is acted on."""

import html
import re

from ringfence.escape import visible

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_EMPTY = frozenset({"meta", "br"})


class Html(str):
    """Text that is HTML already: made here, of escaped parts."""

    __slots__ = ()


def text(said: str, *, lines: bool = False) -> Html:
    """Text of anybody's: what does not show is spelled out, what means something to HTML is escaped.

    Args:
        said: Anything.
        lines: Whether its line breaks stay.
    """
    return Html(html.escape(visible(said, one_line=not lines)))


def element(name: str, /, *children: "str | Html", **attributes: str) -> Html:
    """An element. A child that is no `Html` is text; an attribute `class_` is `class`, and `_` is `-`."""
    for each in (name, *attributes):
        if not _NAME.fullmatch(each.rstrip("_").replace("_", "-")):
            raise ValueError(f"{each!r} is no name in HTML")
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
    if name in _EMPTY:
        return Html(f"<{name}{said}>")
    inner = "".join(child if isinstance(child, Html) else text(child) for child in children)
    return Html(f"<{name}{said}>{inner}</{name}>")


def joined(*parts: "str | Html") -> Html:
    """Parts one after another."""
    return Html("".join(part if isinstance(part, Html) else text(part) for part in parts))
