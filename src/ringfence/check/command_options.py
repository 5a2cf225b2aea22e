"""Files and modules that the options of a check's command name: they decide what it says as much as its script does.

A value that follows an option counts, or `@word`. A word without an option may name the product that is checked.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from ringfence.check.command_words import is_condition, parts_of
from ringfence.frozen import frozen

_MAKE_VARIABLE = re.compile(r"\$[({]MAKE[)}]")
_PYTHON = re.compile(r"(?:pypy|python)[\d.]*|coverage|uv")
_LOADS_CODE = re.compile(
    r"-[cfr]|--?(?:[\w-]*-)?(?:require|import|loader|reporter|plugins?|config|conf|setup\w*|exec|runner|environment|hook"
    r"|file|rulesdir|resolver|preload)"
)
"""Options whose value may be a file of code that is loaded with the check."""
_CODE = (
    *(
        ".py",
        ".js",
        ".cjs",
        ".mjs",
        ".ts",
        ".cts",
        ".mts",
        ".jsx",
        ".tsx",
        ".go",
        ".rs",
        ".java",
        ".kt",
        ".rb",
        ".pl",
    ),
    *(
        ".c",
        ".cc",
        ".cpp",
        ".h",
        ".hpp",
        ".cs",
        ".php",
        ".swift",
        ".scala",
        ".groovy",
        ".css",
        ".scss",
        ".vue",
    ),
)
_DOCUMENTS = (".md", ".rst", ".adoc", ".html")
_MOST_LETTERS = 8
_KINDS_OF_VARIABLES: Mapping[str, Literal["makefile", "code"]] = {
    "MAKEFILES": "makefile",
    "BASH_ENV": "code",
    "ENV": "code",
    "SHELL": "code",
    "PYTHONSTARTUP": "code",
}
"""What a variable of a command names, where that is more than a file of configuration."""
_DIRECTORIES = ("-C", "--directory", "--prefix", "--cwd")
_PLUGIN_OF_CONFIGURATION = re.compile(r"(?<![\w-])-p[ \t\n\"',=]{0,20}([A-Za-z_][\w.]*)")
NODE_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")


@frozen
class NamedByOption:
    """What an option names.

    Attributes:
        kind: `module`: what Python runs; `plugin`: a module that pytest loads; `arguments`: a file with further
            arguments; `makefile`; `code`: a file of any kind; `file`: one that is no code.
        word: As it is written.
        directories: Where it may be looked for, besides the one that the command runs in.
    """

    kind: Literal["module", "plugin", "arguments", "makefile", "code", "file"]
    word: str
    directories: tuple[str, ...] = ()

    def may_mean(self, path: str) -> bool:
        """Whether a file of this name is protected because an option names it."""
        is_code = path.endswith(_CODE)
        return not path.endswith(_DOCUMENTS) and (
            not is_code or self.kind in ("code", "arguments", "makefile")
        )


def named_by_options(text: str) -> Iterator[NamedByOption]:
    """What the options of some shell commands name.

    Args:
        text: The commands, as in a check, a script or a recipe of make.
    """
    directory = ""
    for words in parts_of(_MAKE_VARIABLE.sub("make", text)):
        if words[:1] == ["cd"]:
            directory = words[1] if len(words) > 1 else ""
        if not is_condition(words):
            yield from _named_in(words, directory)


def plugins_of_configuration(text: str) -> Iterator[NamedByOption]:
    """The plugins that the `addopts` of a configuration of pytest name."""
    return (NamedByOption("plugin", name) for name in _PLUGIN_OF_CONFIGURATION.findall(text))


def plugins_of_conftest(text: str) -> Iterator[NamedByOption]:
    """The plugins that a `conftest.py` names in `pytest_plugins`, as literals."""
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for line in lines:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if not any(isinstance(each, ast.Name) and each.id == "pytest_plugins" for each in targets):
            continue
        for node in ast.walk(line):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from (NamedByOption("plugin", name.strip()) for name in node.value.split(","))


def _named_in(words: list[str], directory: str) -> Iterator[NamedByOption]:
    programs = [word.lstrip("@").rpartition("/")[2] for word in words]
    is_pytest = any(name in ("pytest", "py.test") for name in programs)
    end = next((n for n, name in enumerate(programs) if name in ("pytest", "py.test")), len(words))
    is_python = any(_PYTHON.fullmatch(name) for name in programs)
    is_make = any(name in ("make", "gmake") for name in programs)
    options = [*_options(words)]
    paths = [value for word in words if word.startswith("PYTHONPATH=") for value in word[11:].split(":")]
    places = (directory, *paths, *(value for _, name, value in options if name in _DIRECTORIES))
    for number, word in enumerate(words):
        if number and word.startswith("@"):
            yield NamedByOption("arguments", word[1:], places)
    for word in words:
        variable, is_assigned, value = word.partition("=")
        if is_assigned and variable.isidentifier() and value:
            yield NamedByOption(_KINDS_OF_VARIABLES.get(variable, "file"), value.strip("'\""), places)
    for number, name, value in options:
        if name == "-p" and is_pytest:
            yield NamedByOption("plugin", value, places)
        elif name == "-m" and is_python and number <= end:
            yield NamedByOption("module", value, places)
        elif is_make and name in ("-f", "--file", "--makefile"):
            yield NamedByOption("makefile", value, places)
        else:
            yield NamedByOption("code" if _LOADS_CODE.fullmatch(name) else "file", value, places)


def _options(words: list[str]) -> Iterator[tuple[int, str, str]]:
    """(place, name, value) of each option that has a value, or may have one."""
    for number, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, has_value, value = word.partition("=")
        if has_value:
            yield number, name, value.strip("'\"")
            continue
        is_group = len(word) > 2 and word[1] != "-"
        if is_group:  # `-sf NAME`, `-fNAME`, `-sfNAME`
            for place in range(1, min(len(word) - 1, _MOST_LETTERS)):
                yield number, f"-{word[place]}", word[place + 1 :]
        if number + 1 < len(words) and not words[number + 1].startswith("-"):
            yield number, word, words[number + 1]
            if is_group:
                yield number, f"-{word[-1]}", words[number + 1]
