"""The commands of ringfence that a page of Markdown shows, and what is wrong with one."""

import re
import shlex
from typing import Any

import typer
import typer.main

from ringfence.cli.app import app


def commands_in(text: str) -> list[str]:
    """Every command line of ringfence in the shell blocks and code spans of a page."""
    found = []
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        joined = block.replace("\\\n", " ")
        found += re.findall(r"^(?:\$ )?(ringfence .*)", joined, re.MULTILINE)
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found += re.findall(r"`(ringfence\s[^`]+)`", without_blocks)
    return sorted({" ".join(line.split()) for line in found})


def command_of(line: str) -> tuple[Any, list[str]]:
    """The command that a line names, and the words after it that are ringfence's own.

    Raises:
        LookupError: There is no such command.
    """
    words = _words(line)[1:]
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="ringfence")
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        name, *words = words
        below = command.get_command(context, name)
        if below is None or below.hidden:
            raise LookupError(f"there is no command {name!r} in {context.command_path!r}")
        command, context = below, typer.Context(below, info_name=name, parent=context)
    return command, words


def _words(line: str) -> list[str]:
    """The words up to `--`, a comment, or what the shell does with the command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "=,:@{}$%"
    words: list[str] = []
    try:
        for word in lexer:
            if word == "--" or set(word) <= set("|&;<>()"):
                break
            words.append(word)
    except ValueError:
        pass  # a quotation that goes on in the next line
    return words


def options_of(command: Any) -> set[str]:
    """All options of a command, and `--help`."""
    options = (name for parameter in command.params for name in parameter.opts + parameter.secondary_opts)
    return {name for name in options if name.startswith("-")} | {"--help"}


def fault_of(line: str) -> str:
    """What is wrong with a command line; empty if nothing is."""
    try:
        command, words = command_of(line)
    except LookupError as exc:
        return str(exc)
    if command.name in ("claude", "codex"):
        return ""  # options of the agent CLI may follow
    unknown = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)} - options_of(command)
    return f"there is no option {', '.join(sorted(unknown))}" if unknown else ""
