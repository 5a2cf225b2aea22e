"""Finds out how the product under test spells what `names.py` lists, by asking its help."""

import re
import subprocess
from functools import cache
from typing import Any

from tests.promises import names

HELP_PATIENCE_S = 60.0


@cache
def help_of(python: str, *words: str) -> str:
    """The help of a command; empty if there is no such command."""
    command = [python, "-P", "-m", "ringfence", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HELP_PATIENCE_S)
    return done.stdout if done.returncode == 0 else ""


def is_command(python: str, words: list[str]) -> bool:
    """Whether each word is listed in the help of the words before it."""
    return all(
        re.search(rf"^\W*(?:-\w, )?{re.escape(word)}\b", help_of(python, *words[:place]), re.MULTILINE)
        for place, word in enumerate(words)
    )


def spell_command(python: str, command: str) -> list[str]:
    """The words that the product has for a command."""
    spellings = names.COMMANDS.get(command, (command,))
    found = (spelling.split() for spelling in spellings[:-1] if is_command(python, spelling.split()))
    return next(found, spellings[-1].split())


def spell_option(python: str, command: list[str], word: str) -> str:
    """An option as the product spells it; any other word stays."""
    spellings = names.OPTIONS.get(word, (word,))
    found = (spelling for spelling in spellings[:-1] if spelling in help_of(python, *command))
    return next(found, spellings[-1])


def spell_setting(schema: str, key: str) -> str:
    """A key of the configuration as the product spells it: the newest spelling whose last part its schema names."""
    spellings = names.SETTINGS.get(key, (key,))
    found = (spelling for spelling in spellings[:-1] if f'"{spelling.rpartition(".")[2]}"' in schema)
    return next(found, spellings[-1])


def spell_import(name: str) -> str:
    """Lines of Python that import a public name from where the product has it."""
    lines = [
        f"try:\n    from {module} import {name}\nexcept ImportError:\n    pass"
        for module in names.IMPORTS[name]
    ]
    return "\n".join(reversed(lines)) + f"\n{name}\n"


def read_document(value: Any) -> Any:
    """A JSON document of the product with the names of the tests."""
    if isinstance(value, list):
        return [read_document(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {names.KEYS.get(key, key): read_document(each) for key, each in value.items()}
    for key, table in (("state", names.STATES), ("event", names.EVENTS)):
        if isinstance(word := found.get(key), str):
            found[key] = table.get(word, word)
    return found
