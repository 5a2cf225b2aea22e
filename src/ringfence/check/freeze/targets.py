"""What the commands of the checks name: programs, scripts of the project, and targets of make and just."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ringfence.check.freeze.model import Guard, Kind

MAKEFILES = re.compile(r"(?:GNUm|[mM])akefile|.*\.mk")
JUSTFILES = re.compile(r"\.?[jJ]ust[fF]ile|.*\.just|JUSTFILE")
_WORD = re.compile(r"[^\s;&|()<>`\"'$=]+")
_NAME = r"@?\w[\w./+-]*"
_HEAD = re.compile(rf"(?P<targets>{_NAME}(?:\s+{_NAME})*)\s*::?(?!=)(?P<needs>[^=]*)")
_VARIABLE = re.compile(r"\$(?:\([\w.-]+\)|\{[\w.-]+\}|\w)")
_PHONY = re.compile(r"\.PHONY\s*:(?P<needs>[^=$]*)")
_ASSIGNMENT = re.compile(
    r"(?:(?:export|override|private)\s+)*(?P<name>[\w.-]+)\s*[:?+!]{0,3}=(?P<value>.*)", re.DOTALL
)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
_DEFINE = re.compile(r"\s*(?:(?:export|override|private)\s+)*define\b(?!\s*:)")
_KEYWORDS = frozenset(
    {
        *("include", "sinclude", "define", "endef", "undefine", "load", "vpath"),
        *("ifdef", "ifndef", "ifeq", "ifneq", "else", "endif", "export", "unexport", "override", "private"),
    }
)
"""Lines of make that begin with one of them are no rules, even where a colon follows."""


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


def makefile_part(data: bytes, guard: Guard) -> tuple[Kind, bytes]:
    """All of a Makefile but those rules that no check's command leads to, and comments.

    What is not surely a rule with a name of its own (variables, patterns, includes, conditions, functions, which are
    called while it is read) counts. One that holds nothing counts, too: it may be read in place of another.
    """
    text = _CONTINUED.sub(r"\1 ", _text(data))
    return _part(_lines_of_make(text), guard)


def justfile_part(data: bytes, guard: Guard) -> tuple[Kind, bytes]:
    """The same of a justfile."""
    return _part(_text(data).split("\n"), guard)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def _lines_of_make(text: str) -> Iterator[str]:
    """Its lines as make takes them: only a tab begins one of a recipe."""
    depth = 0
    for line in text.split("\n"):
        depth += 1 if _DEFINE.match(line) else 0
        if depth:
            yield f"{_IN_DEFINE}{line}"
            depth -= 1 if line.split()[:1] == ["endef"] else 0
        else:
            yield line.lstrip() if line.startswith(" ") else line


_IN_DEFINE = "define "
"""Before each line of a variable of many lines, so that none is taken for a rule."""


def _part(lines: Iterable[str], guard: Guard) -> tuple[Kind, bytes]:
    rules, others, phony = _rules(lines)
    is_first_used = any(
        word.rpartition("/")[2] in ("make", "gmake", "just") for word in words_of(guard.commands)
    )
    wanted = words_of(guard.commands).union(rules[0].targets[:1] if rules and is_first_used else ())
    kept = _reachable(rules, others, wanted)
    always = sorted(phony.intersection(target for rule in kept for target in rule.targets))
    found = [*others, *always, *(line for rule in kept for line in rule.lines)]
    return "runner_config", "\n".join(found).encode("utf-8", "surrogateescape")


class _Rule:
    def __init__(self, head: str, targets: list[str], needs: list[str]) -> None:
        self.targets = targets
        self.needs = needs
        self.lines = [head]


def _rules(lines: Iterable[str]) -> tuple[list[_Rule], list[str], set[str]]:
    """Rules with plain names, all other lines that mean something, and targets that are no files."""
    phony = set[str]()
    rules: list[_Rule] = []
    others: list[str] = []
    is_in_rule = False
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in "\t ":
            (rules[-1].lines if is_in_rule else others).append(line.rstrip())
            continue
        rule = _rule(line)
        is_in_rule = rule is not None
        if rule:
            rules.append(rule)
        elif listed := _PHONY.fullmatch(line):
            phony.update(_WORD.findall(listed["needs"]))
        else:
            others.append(line.rstrip())
    return rules, others, phony


def _rule(line: str) -> _Rule | None:
    head = _HEAD.fullmatch(line)
    if head is None or "$" in _VARIABLE.sub("", head["needs"]):
        return None
    named = [name.removeprefix("@") for name in head["targets"].split()]
    return _Rule(line.rstrip(), named, _WORD.findall(head["needs"])) if named[0] not in _KEYWORDS else None


def _reachable(rules: Sequence[_Rule], others: Sequence[str], wanted: frozenset[str]) -> list[_Rule]:
    """Those that a wanted word leads to, by what they need, by their recipes and by variables, in their order."""
    leads_to: dict[str, list[list[str]]] = {}
    waiting = [*wanted, ".DEFAULT_GOAL"]
    for line in others:
        if assigned := _ASSIGNMENT.fullmatch(line):
            leads_to.setdefault(assigned["name"], []).append(_WORD.findall(assigned["value"]))
        else:
            waiting += _WORD.findall(line)
    for rule in rules:
        words = rule.needs + [word for line in rule.lines[1:] for word in _WORD.findall(line)]
        for target in rule.targets:
            leads_to.setdefault(target, []).append(words)
    reached: set[str] = set()
    while waiting:
        word = waiting.pop()
        reached.add(word)
        for words in leads_to.pop(word, ()):
            waiting += words
            words.clear()  # other targets of the rule lead nowhere else
    return [rule for rule in rules if not reached.isdisjoint(rule.targets)]
