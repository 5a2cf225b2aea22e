"""Scripts of the project that checks run by way of others: of a Makefile's recipe, of npm's scripts, of a script.

Only what stands where a command stands counts, or what an interpreter is given first: any other word of a recipe may be
the product that is checked.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ringfence.check.freeze import names
from ringfence.check.freeze.build_files import called_scripts, json_of
from ringfence.check.freeze.model import MOST_BYTES, SYMLINK, Guard, Item
from ringfence.check.freeze.targets import JUSTFILES, MAKEFILES, justfile_part, makefile_part, uses_tool

_BREAKS = re.compile(r"[;&|(){}`\n]+")
_ASSIGNMENT = re.compile(r"\w+=")
_BEFORE = frozenset(
    {
        "!", "[", "[[", "command", "do", "elif", "else", "env", "exec", "if", "nice", "npx", "then", "time", "until",
        "while", "xargs", "sudo",
    }
)  # fmt: skip
"""Words before a command that are none of it."""
_INTERPRETER = re.compile(
    r"(?:ba|da|z|k)?sh|python[\d.]*|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|source|\."
)
_INCLUDE = re.compile(r"^-?s?include\s+(.+)$", re.MULTILINE)
_SHELL_NAME = re.compile(r"[^.]+|.*\.(?:sh|bash|zsh|ksh)")
_SHELL_LINE = re.compile(rb"#![^\n]*\b(?:ba|da|z|k)?sh\b")
_SETUP_KEYS = frozenset(
    {
        "setupFiles", "setupFilesAfterEnv", "globalSetup", "globalTeardown", "testEnvironment", "testRunner", "runner",
        "reporters", "transform", "resolver", "snapshotSerializers", "require", "file",
    }
)  # fmt: skip
_SETUP = re.compile(
    rf"\b(?:{'|'.join(sorted(_SETUP_KEYS))})\b[\"']?\s*[:=]\s*"
    r"(?:\[(?P<list>[^\]]{0,4000})|\{(?P<map>[^}]{0,4000})|(?P<lines>(?:-[^\n]{0,400}\n\s*){1,40})|(?P<one>[^\n,}]{0,400}))"
)
"""The same in a program or YAML, which is read as text."""
_NAME = re.compile(r"[^\s\"'`,()\[\]{}]+")
_ENDINGS = ("", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
_MOST_LINKS = 40
_SECTIONS = ("jest", "vitest", "mocha", "ava", "nyc", "c8", "tap")


def with_scripts(files: Mapping[str, Item], guard: Guard) -> Guard:
    """The guard of a tree: it knows the scripts that its commands lead to, and what makefiles include where it is there.

    Args:
        files: All of the tree.
        guard: What runs the checks.
    """
    found: set[str] = set()
    waiting = [("", command) for command in guard.commands]
    for path, item in files.items():
        if item.is_file and len(item.data) <= MOST_BYTES:
            waiting += _texts(path, item.data, guard)
            named = {f"{place}{ending}" for place in _set_up_by(path, item.data) for ending in _ENDINGS}
            found |= named & files.keys()
    while waiting:
        folder, text = waiting.pop()
        for word in (*_scripts_in(text), *_included(text)):
            for path in {*_ways(posixpath.join(folder, word), files), *_ways(word, files)}:
                if path in files and path not in found:
                    found.add(path)
                    if _is_shell(path, files[path]):
                        waiting.append((posixpath.dirname(path), _text(files[path].data)))
        found |= {posixpath.normpath(posixpath.join(folder, word)) for word in _included(text)}
    return replace(guard, scripts=frozenset(found))


def _ways(path: str, files: Mapping[str, Item]) -> Iterator[str]:
    """A path, each link on the way along it, and where it leads: to change any of them changes the script."""
    path = posixpath.normpath(path)
    for _ in range(_MOST_LINKS):
        yield path
        parts = path.split("/")
        heads = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        link = next((head for head in heads if head in files and files[head].mode == SYMLINK), None)
        if link is None:
            return
        yield link
        leads_to = posixpath.join(posixpath.dirname(link), _text(files[link].data))
        path = posixpath.normpath(leads_to + path[len(link) :])


def _texts(path: str, data: bytes, guard: Guard) -> Iterator[tuple[str, str]]:
    """What of a file a shell runs for a check, and where."""
    folder, _, name = path.rpartition("/")
    if MAKEFILES.fullmatch(name) and uses_tool(guard.commands, "make", "gmake"):
        yield folder, _text(makefile_part(data, guard)[1])
    elif JUSTFILES.fullmatch(name) and uses_tool(guard.commands, "just"):
        yield folder, _text(justfile_part(data, guard)[1])
    elif name == "package.json":
        for script in called_scripts(data, guard):
            yield folder, script


def _scripts_in(text: str) -> Iterator[str]:
    """The paths that are run as programs, or given to an interpreter, by shell commands."""
    for part in _BREAKS.split(text.replace("\\\n", " ")):
        words = [word.strip("'\"") for word in part.split()]
        if words:
            words[0] = words[0].lstrip("@-+")  # make's, of a recipe's line
        while words:
            word = words.pop(0)
            if not word or word in _BEFORE or _ASSIGNMENT.match(word):
                continue
            name = word.rpartition("/")[2]
            if _INTERPRETER.fullmatch(name):
                flags = []
                while words and words[0].startswith("-"):
                    flags.append(words.pop(0))
                if any("c" in flag for flag in flags if not flag.startswith("--")) and name.endswith("sh"):
                    continue  # the next word begins a command
                if words and not any(flag in ("-m", "-c", "-e", "--eval") for flag in flags):
                    yield words[0]
            elif "/" in word:
                yield word
            break


def _included(text: str) -> Iterator[str]:
    for found in _INCLUDE.finditer(text):
        yield from found[1].split()


def _is_shell(path: str, item: Item) -> bool:
    is_one = _SHELL_NAME.fullmatch(path.rpartition("/")[2]) or _SHELL_LINE.match(item.data)
    return bool(is_one) and item.is_file and len(item.data) <= MOST_BYTES


def _set_up_by(path: str, data: bytes) -> Iterator[str]:
    """Files that the configuration of jest and its like has them load."""
    folder, _, name = path.rpartition("/")
    for text in _set_up_texts(name, data):
        yield posixpath.normpath(posixpath.join(folder, text.removeprefix("<rootDir>/")))


def _set_up_texts(name: str, data: bytes) -> Iterator[str]:
    if name == "package.json":
        document = json_of(data)
        for section in _SECTIONS if isinstance(document, dict) else ():
            yield from _strings(document.get(section), is_wanted=False)
    elif names.WHOLE_RUNNER_FILES["node"].fullmatch(name) or names.VITE_FILES.fullmatch(name):
        for found in _SETUP.finditer(_text(data)):
            yield from _NAME.findall(found["list"] or found["map"] or found["lines"] or found["one"] or "")


def _strings(value: Any, *, is_wanted: bool) -> Iterator[str]:
    if isinstance(value, str):
        if is_wanted:
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each, is_wanted=is_wanted)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _strings(each, is_wanted=is_wanted or key in _SETUP_KEYS)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
