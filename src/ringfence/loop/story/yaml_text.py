"""Writes plain values as YAML for people, of which every character comes back.

A general writer folds long lines and rewrites some line breaks; this one writes blocks, words and quoted text.
"""

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*", re.ASCII)
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "null", "yes", "no", "y", "n", "on", "off"})
_LONGEST_KEY = 400
"""In the form `key: value`; YAML's readers look no further than 1024 characters for the colon."""


def yaml_text(value: Any) -> str:
    """A mapping or list as YAML."""
    return _node(value, 0).lstrip("\n ")


def _node(value: Any, depth: int) -> str:
    """What stands after a key or a dash: text on the same line, or a block of lines below."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        return "\n" + "".join(
            f"{pad}{_key(key, pad)}:{_node(below, depth + 1)}" for key, below in value.items()
        )
    if isinstance(value, list) and value:
        return "\n" + "".join(f"{pad}-{_item(below, depth + 1)}" for below in value)
    if isinstance(value, str) and _is_block(value):
        chomp = "" if value.endswith("\n") else "-"
        return f" |{chomp}\n" + "".join(f"{pad}{line}\n" if line else "\n" for line in value.splitlines())
    return f" {_scalar(value)}\n"


def _item(value: Any, depth: int) -> str:
    written = _node(value, depth)
    return written if written.startswith(" ") else " " + written[1 + 2 * depth :]


def _key(key: str, pad: str) -> str:
    written = _quoted(key)
    return written if len(written) <= _LONGEST_KEY else f"? {written}\n{pad}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}"
    return json.dumps(value)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_WITH_A_MEANING:
        return text
    return "".join(
        letter if letter.isprintable() else _escaped(letter)
        for letter in json.dumps(text, ensure_ascii=False)
    )


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_block(text: str) -> bool:
    """Whether it has several lines that are plain enough to stand as they are."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and not text.startswith((" ", "\n"))
        and bool(lines[-1])
        and all(line.isprintable() and (not line or line.strip()) for line in lines)
    )
