"""Text that comes from an agent, made harmless for a terminal or a file that one looks at.

An agent that can move the cursor, retitle the window, colour its output or reverse its direction can make a
transcript say what did not happen. So whatever is not plainly visible is shown by its code. What `visible`
returns is for eyes: it is not reversible, and it does not escape the markup of rich (print a
`rich.text.Text`, never a string, to a console).
"""

import json
import re
import unicodedata
from functools import lru_cache
from typing import Any

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e]")
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
"""Letters and marks that show nothing, so that names can be made to look alike."""


def visible(text: str, *, one_line: bool = False) -> str:
    """`text` with control characters, direction overrides and invisible characters spelled out.

    Args:
        text: Anything, lone surrogates included.
        one_line: Spell out newlines and tabs too; otherwise they are kept.
    """
    shown = _SUSPECT.sub(lambda match: _shown(match[0]), text)
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def safe_json(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON in plain ASCII: the same data for a program, nothing active for a terminal."""
    return json.dumps(value, ensure_ascii=True, indent=indent).replace("\x7f", "\\u007f")


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    is_hidden = character in _INVISIBLE_LETTERS or _is_selector(character)
    # NO-BREAK SPACE and its kin count as unprintable for Python, but do no harm.
    if not is_hidden and (character.isprintable() or unicodedata.category(character) == "Zs"):
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_selector(character: str) -> bool:
    """Variation selectors beyond the emoji one can carry hidden text."""
    return "\ufe00" <= character <= "\ufe0e" or "\U000e0100" <= character <= "\U000e01ef"
