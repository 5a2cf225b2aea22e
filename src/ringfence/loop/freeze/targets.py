"""What the commands of the checks name: programs, scripts of the project, and targets of make and just."""

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from ringfence.loop.freeze.model import Guard, Kind

MAKEFILES = re.compile(r"(?:GNUm|[mM])akefile|.*\.mk")
JUSTFILES = re.compile(r"\.?[jJ]ust[fF]ile|.*\.just|JUSTFILE")
_WORD = re.compile(r"[^\s;&|()<>`\"'$=]+")
_HEAD = re.compile(r"(?P<targets>[^\s#=:@\[][^#=:]*|@[\w-][^#=:]*)::?(?!=)(?P<needs>[^=]*)$")


@lru_cache(maxsize=64)
def words_of(commands: tuple[str, ...]) -> frozenset[str]:
    """The words of shell commands."""
    return frozenset(word for command in commands for word in _WORD.findall(command))


def uses_tool(commands: tuple[str, ...], *tools: str) -> bool:
    """Whether a command calls one of them, by whatever path."""
    return any(word.rpartition("/")[2] in tools for word in words_of(commands))


def is_named_by(path: str, commands: tuple[str, ...]) -> bool:
    """Whether a command names this file of the project: `./scripts/test.sh`, `python run_tests.py`."""
    return path in _paths_of(commands)


@lru_cache(maxsize=64)
def _paths_of(commands: tuple[str, ...]) -> frozenset[str]:
    return frozenset(posixpath.normpath(word) for word in words_of(commands))


def makefile_part(data: bytes, guard: Guard) -> tuple[Kind, bytes] | None:
    """All of a Makefile or justfile but those rules that no check's command leads to.

    What is not surely a rule with a name of its own (variables, patterns, includes, conditions) counts.
    """
    rules, others, phony = _rules(data.decode("utf-8", "surrogateescape"))
    is_first_used = any(
        word.rpartition("/")[2] in ("make", "gmake", "just") for word in words_of(guard.commands)
    )
    wanted = words_of(guard.commands).union(rules[0].targets[:1] if rules and is_first_used else ())
    kept = _reachable(rules, wanted)
    always = sorted(phony.intersection(target for rule in kept for target in rule.targets))
    lines = [*others, *always, *(line for rule in kept for line in rule.lines)]
    return ("runner_config", "\n".join(lines).encode("utf-8", "surrogateescape")) if lines else None


class _Rule:
    def __init__(self, head: str, targets: list[str], needs: list[str]) -> None:
        self.targets = targets
        self.needs = needs
        self.lines = [head]


def _rules(text: str) -> tuple[list[_Rule], list[str], set[str]]:
    """Rules with plain names, all other lines that mean something, and targets that are no files."""
    phony = set[str]()
    rules: list[_Rule] = []
    others: list[str] = []
    is_in_rule = False
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in "\t ":
            (rules[-1].lines if is_in_rule else others).append(line.rstrip())
            continue
        rule = _rule(line)
        is_in_rule = rule is not None
        if rule:
            rules.append(rule)
        elif line.startswith(".PHONY"):
            phony.update(_WORD.findall(line))
        else:
            others.append(line.rstrip())
    return rules, others, phony


def _rule(line: str) -> _Rule | None:
    head = _HEAD.fullmatch(line)
    if head is None:
        return None
    named = head["targets"].lstrip("@").split()
    is_plain = bool(named) and not any(set(name) & set("%$*?[(") or name.startswith(".") for name in named)
    return _Rule(line.rstrip(), named, _WORD.findall(head["needs"])) if is_plain else None


def _reachable(rules: Sequence[_Rule], wanted: frozenset[str]) -> list[_Rule]:
    """Those that a wanted word leads to, by what they need and by what their recipes name, in their order."""
    by_target: dict[str, list[_Rule]] = {}
    for rule in rules:
        for target in rule.targets:
            by_target.setdefault(target, []).append(rule)
    kept: set[int] = set()
    waiting = list(wanted)
    while waiting:
        for rule in by_target.pop(waiting.pop(), ()):
            if id(rule) not in kept:
                kept.add(id(rule))
                waiting += rule.needs + [word for line in rule.lines[1:] for word in _WORD.findall(line)]
    return [rule for rule in rules if id(rule) in kept]
