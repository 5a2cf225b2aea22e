"""`ringfence run ... TASK` without the command line's library, whose start takes a fifth of a run's.

Only what is plain is read here; all else, and every mistake, is for the whole command line to judge.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.cli.quick import COMPLETION
from ringfence.frozen import frozen

_SHORT = {"-C": "--workspace", "-m": "--model", "-e": "--env"}
_TEXTS = (
    "--sandbox", "--image", "--engine", "--mode", "--model", "--runtime", "--toolset", "--system-prompt",
    "--system-append", "--permission-mode", "--idle-timeout", "--verify", "--memory", "--disk", "--timeout", "--wait",
    "--auth",
)  # fmt: skip
_PATHS = ("--workspace", "--cli-path", "--output-schema")
_LISTS = (
    "--setup",
    "--forward",
    "--allow",
    "--env",
    "--allow-tool",
    "--deny-tool",
    "--cli-arg",
    "--settings-source",
)
_SWITCHES = ("--json", "--require-verified", "--soft-limits", "--force")
_READ: Mapping[str, Callable[[str], str | Path]] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_PATHS, Path),
}
"""Options that are given once, and what makes their values of words."""


@frozen
class PlainRun:
    """A task for an agent."""

    prompt: str
    options: Mapping[str, Any]
    """As the command line's function names them."""

    def run(self) -> int:
        """Do it; its exit code."""
        from ringfence.cli.run_task import run_task

        return run_task(self.prompt, **self.options)


def plain_run(words: Sequence[str]) -> PlainRun | None:
    """What the words of a command line ask for, if that is a plain `run`; else None."""
    if tuple(words[:1]) != ("run",) or COMPLETION in os.environ:
        return None
    options: dict[str, Any] = {}
    prompts: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            prompts += rest
        elif not word.startswith("-"):
            prompts.append(word)
        elif not _take(word, rest, options):
            return None
    is_plain = len(prompts) == 1 and prompts[0] not in ("", "-")
    return PlainRun(prompts[0], options) if is_plain else None


def _take(word: str, rest: Iterator[str], options: dict[str, Any]) -> bool:
    """Add an option to the others; False if it is not plain."""
    long, equals, joined = word.partition("=") if word.startswith("--") else (word, "", "")
    flag = _SHORT.get(long, long)
    name = flag.removeprefix("--").replace("-", "_")
    if flag in _SWITCHES:
        options[name] = True
        return not equals
    value = joined if equals else next(rest, "")
    if not value or value.startswith("-"):
        return False
    if flag in _LISTS:
        options.setdefault(name, []).append(value)
        return True
    if flag not in _READ or name in options:
        return False
    options[name] = _READ[flag](value)
    return True
