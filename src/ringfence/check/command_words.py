"""What shell commands run: the scripts among their words, behind interpreters, wrappers and the values of variables."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Literal

from ringfence.frozen import frozen

BREAKS = re.compile(r"[;&|(){}`\n]+")
_ASSIGNMENT = re.compile(r"\w+=")
_SHELL = re.compile(r"(?:ba|da|z|k|a)?sh")
_INTERPRETER = re.compile(
    r"(?:ba|da|z|k|a)?sh|(?:python|pypy)[\d.]*|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|source|\."
)
_WRAPPERS = frozenset(
    {
        *("!", "command", "do", "elif", "else", "env", "eval", "exec", "if", "then", "time", "until", "while"),
        "builtin",
        *("nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "gtimeout", "unbuffer", "xargs", "parallel", "sudo"),
        *("doas", "chronic", "strace", "busybox", "flock", "script", "xvfb-run", "faketime", "taskset", "find"),
        *("npx", "npm", "pnpm", "yarn", "bunx", "uv", "uvx", "poetry", "pdm", "pipenv", "pixi", "rye", "hatch", "conda"),
        *("mamba", "micromamba", "mise", "asdf", "direnv", "dotenv", "dotenvx", "bundle", "nix", "devbox", "coverage"),
        *("c8", "nyc", "kernprof", "cross-env"),
    }
)  # fmt: skip
"""Words before a command that are no part of it, and programs that run another one."""
_SUBCOMMANDS = frozenset({"run", "exec", "x", "develop", "shell", "dlx", "--", "."})
_OF_RUNTIMES = frozenset({"run", "exec", "x", "test", "task"})
"""Words by which deno and bun run a script."""
_CONDITIONS = frozenset({"[", "[[", "test"})
"""Programs that only look at files."""
_KEYWORDS = frozenset({"!", "if", "elif", "while", "until"})
_SOURCING = frozenset({".", "source"})
_NUMBER = re.compile(r"[\d.]+[a-z]?")
_RUNNING_MODULES = frozenset({"coverage", "cProfile", "profile", "trace", "pdb", "runpy", "kernprof"})
"""Modules of Python that run the script after them."""
_SCRIPT = (".sh", ".bash", ".py", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".rb", ".pl", ".php")
_SHELL_VALUE = re.compile(r"[-+][A-Za-z]*[oO]|--(?:rcfile|init-file)")
_PYTHON_VALUE = re.compile(r"-[A-Za-z]*[WX]|--check-hash-based-pycs")
_WITHOUT_VALUE = re.compile(
    r"--?(?:test|watch|no-.*|experimental-(?!loader|config|default).*|enable-.*|expose.*|inspect.*|trace-.*|allow-.*)"
)
_SHELL_CODE = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_PYTHON_MODULE = re.compile(r"-[A-Za-z]*m")
_CODE_ONLY = frozenset({"-e", "-c", "-p", "-pe", "--eval", "--print", "--check"})
"""Options of interpreters other than shells, after which no script is run."""
_REDIRECTED = re.compile(r"(?<!<)<[ \t]*([^\s<>&(]+)")
_OPTIONS_OF_VARIABLE = re.compile(r"(?<!\S)\w+=[\"']?(?=-)")
_DEFINED = re.compile(
    r"^[ \t]*+(?:export[ \t]+|override[ \t]+)?(\w+)[ \t]*+(?::{0,3}|\?|\+)=[ \t]*+([^\n]{0,1000})",
    re.MULTILINE,
)
_LOOP = re.compile(r"\bfor[ \t]+(\w+)[ \t]+in[ \t]+([^;\n]{1,1000})")
_VARIABLE = re.compile(r"\$\$?(?:[({](\w+)[)}]|(\w+))")
_MOST_EXPANDED = 1 << 21
_ALTERNATIVE = "\0"
_MOST_SHELLS = 10


@frozen
class Called:
    """A path that a command runs as a program, or gives to an interpreter.

    Attributes:
        word: As it is written.
        is_shell: Whether it is given to a shell.
    """

    word: str
    is_shell: bool


def definitions(text: str) -> dict[str, str]:
    """The variables that a makefile or a shell script defines by lines of their own, each with its last value."""
    return {name: value.strip() for name, value in _DEFINED.findall(text)}


def expand(text: str) -> str:
    """A text of make or a shell with the values of the variables that it defines itself.

    A variable without a definition stands for what its name says if that is an interpreter (`$(PYTHON)`), else for
    nothing that counts. Text that would become too long is returned as it is.
    """
    text = text.replace("\\\n", " ")
    values = definitions(text)
    values |= {name: _ALTERNATIVE.join(words.split()) for name, words in _LOOP.findall(text)}

    def value(found: "re.Match[str]") -> str:
        name = found[1] or found[2]
        if name in values:
            return values[name].strip("\"'")
        return name.lower() if _INTERPRETER.fullmatch(name.lower()) or name == "MAKE" else found[0]

    for _ in range(3):
        room = _MOST_EXPANDED - len(text)
        if sum(len(values.get(each[1] or each[2], "")) for each in _VARIABLE.finditer(text)) > room:
            break
        expanded = _VARIABLE.sub(value, text)
        if expanded == text:
            break
        text = expanded
    return text


def parts_of(text: str) -> Iterator[list[str]]:
    """The simple commands of a text, each as its words without quotes."""
    text = _OPTIONS_OF_VARIABLE.sub("env ", text.replace("\\\n", " "))
    for part in BREAKS.split(text):
        words = [word.strip("'\"") for word in part.split()]
        words[:1] = [word.lstrip("@-+") for word in words[:1]]  # make's, of a recipe's line
        words = [word for word in words if word]
        if words:
            yield words


def is_condition(words: list[str]) -> bool:
    """Whether a simple command only looks at files."""
    return next((word for word in words if word not in _KEYWORDS), "") in _CONDITIONS


def called_in(text: str) -> Iterator[Called]:
    """The scripts and programs, by their paths, that shell commands run."""
    for words in parts_of(text):
        for called in _programs_in(words):
            yield from (Called(each, called.is_shell) for each in called.word.split(_ALTERNATIVE) if each)


def _programs_in(words: list[str], depth: int = 0) -> Iterator[Called]:
    """What one command runs: the words at the place of a program, and what any interpreter among the others runs."""
    place = 0
    for place, word, kind in _read_command(words):
        if kind == "interpreter":
            yield from _scripts_of(words[place:], depth)
            return
        if kind == "value" or word.endswith(_SCRIPT) or "/" in word:
            yield Called(word, is_shell=False)
        elif word == "cat":  # what it prints may be what a shell reads
            yield from (Called(each, True) for each in words[place:] if each.endswith((".sh", ".bash")))
        elif word in _CONDITIONS:
            return
    rest = words[place + 1 :]
    others = (number for number, word in enumerate(rest) if word not in _SOURCING and _is_interpreter(word))
    first = next(others, None)
    if first is not None:
        yield from (each for each in _scripts_of(rest[first:], depth) if _is_script(each.word))


def _read_command(words: list[str]) -> Iterator[tuple[int, str, Literal["value", "interpreter", "program"]]]:
    """(place, word, kind) up to the program: values of options that may be scripts, and the program itself."""
    is_wrapped = may_be_value = False
    for place, word in enumerate(words):
        if _is_interpreter(word) and not (word == "." and place):
            yield place, word, "interpreter"
            return
        if _ASSIGNMENT.match(word):
            continue
        if word.startswith("-"):
            may_be_value = word != "--" and "=" not in word
        elif word.rpartition("/")[2] in _WRAPPERS:
            is_wrapped, may_be_value = True, False
        elif may_be_value or (is_wrapped and (word in _SUBCOMMANDS or _NUMBER.fullmatch(word))):
            may_be_value = False
            if _is_script(word):
                yield place, word, "value"
        else:
            yield place, word, "program"
            return


def _is_interpreter(word: str) -> bool:
    return bool(_INTERPRETER.fullmatch(word.rpartition("/")[2]))


def _is_script(word: str) -> bool:
    return word.endswith(_SCRIPT) or "/" in word


def _scripts_of(words: list[str], depth: int) -> Iterator[Called]:
    """What an interpreter, the first word, runs: its first argument, and what is or may be the value of an option."""
    name = words[0].rpartition("/")[2]
    is_shell = name in _SOURCING or bool(_SHELL.fullmatch(name))
    for found in _REDIRECTED.findall(" ".join(words)):
        yield Called(found, is_shell)
    arguments = [*itertools.takewhile(lambda word: not word.startswith("<"), words[1:])]
    if is_shell:
        yield from _run_by_shell(arguments, depth)
    elif name.startswith("py"):
        yield from _run_by_python(arguments, depth)
    else:
        others = _OF_RUNTIMES if name in ("deno", "bun") else ()
        yield from _run_by_others([word for word in arguments if word not in others])


def _run_by_shell(arguments: list[str], depth: int) -> Iterator[Called]:
    for place, word, kind in _read_arguments(arguments, lambda option: bool(_SHELL_VALUE.fullmatch(option))):
        if kind != "option":
            yield Called(word, is_shell=kind == "argument")
        elif _SHELL_CODE.fullmatch(word):
            yield from _programs_in(arguments[place + 1 :], depth + 1) if depth < _MOST_SHELLS else ()
            return


def _run_by_python(arguments: list[str], depth: int) -> Iterator[Called]:
    for place, word, kind in _read_arguments(arguments, lambda option: bool(_PYTHON_VALUE.fullmatch(option))):
        if kind != "option":
            yield from (Called(word + end, is_shell=False) for end in ("", "/__main__.py"))
        elif _PYTHON_MODULE.fullmatch(word):
            if (
                arguments[place + 1 : place + 2]
                and arguments[place + 1] in _RUNNING_MODULES
                and depth < _MOST_SHELLS
            ):
                yield from _programs_in(["coverage", *arguments[place + 2 :]], depth + 1)
            return
        elif word == "-c":
            return


def _run_by_others(arguments: list[str]) -> Iterator[Called]:
    for _, word, kind in _read_arguments(
        arguments, lambda option: "=" not in option and not _WITHOUT_VALUE.fullmatch(option)
    ):
        if kind != "option":
            yield from (Called(word + end, is_shell=False) for end in ("", ".js", "/index.js"))
        elif word in _CODE_ONLY:
            return


def _read_arguments(
    arguments: list[str], has_value: Callable[[str], bool]
) -> Iterator[tuple[int, str, Literal["option", "value", "argument"]]]:
    """(place, word, kind) up to the first argument that is no option and no value of one."""
    may_be_value = False
    for place, word in enumerate(arguments):
        if word.startswith(("-", "+")):
            may_be_value = has_value(word)
            yield place, word, "option"
        elif not may_be_value:
            yield place, word, "argument"
            return
        else:
            may_be_value = False
            if _is_script(word):
                yield place, word, "value"
