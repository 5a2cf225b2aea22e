"""Which files a git setting names: a program, its arguments, or a path as a whole.

Git hands most of these values to a shell, in the top of the work tree (git-config(1)). A shell's text cannot be
told in full without running it, so each word that may be a path is taken for one: too much is guarded rather
than too little.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

_SECTIONS = ("alias.", "pager.", "filter.", "sendemail.", "instaweb.")
"""Sections of which any setting may name a program to git, or a file that it follows (git-config(1))."""
_SETTINGS = frozenset(
    {
        *("gpg.ssh.defaultkeycommand", "gpg.ssh.allowedsignersfile", "gpg.ssh.revocationfile"),
        *("core.hookspath", "core.fsmonitor", "core.editor", "core.pager", "core.sshcommand", "core.askpass"),
        *("core.gitproxy", "core.attributesfile", "core.excludesfile", "core.alternaterefscommand"),
        *("sequence.editor", "interactive.difffilter", "diff.external", "uploadpack.packobjectshook"),
        *("init.templatedir", "commit.template", "imap.tunnel", "svn.authorsprog"),
    }
)
"""Single ones."""
_BELOW = (
    ("include", (".path",)),
    ("credential.", (".helper",)),
    ("gpg.", (".program",)),
    ("submodule.", (".update",)),
    ("diff.", (".command", ".textconv")),
    ("merge.", (".driver",)),
    (("difftool.", "mergetool.", "guitool.", "browser.", "man."), (".cmd", ".path")),
    ("trailer.", (".cmd", ".command")),
    ("remote.", (".uploadpack", ".receivepack")),
    (("hook.", "tar."), (".command",)),
    ("lfs.", (".path", ".args", ".clean", ".smudge")),
)
"""Those of a section, by their last parts; what has a name of the user's stands between the two.

No expression does this: one for all took 30 ms to be compiled, at each start.
"""
_PATHS = (
    ".path",
    ".hookspath",
    ".excludesfile",
    ".attributesfile",
    ".templatedir",
    ".template",
    ".allowedsignersfile",
    ".revocationfile",
)
"""Of these, the ones whose value is a path as a whole, not a command."""
_INCLUDES = re.compile(r"include(if\..*)?\.path", re.DOTALL)
_FILLED_IN = re.compile(r"`[^`]*`|\$\{?\w*\}?")
_HAS_SUFFIX = re.compile(r"[^%*].*\.\w+")
_DEPTH = 4
_MAX_LETTERS = 16_384


def names_a_file(key: str) -> bool:
    """Whether a setting's value is a program to git, or a file that it follows."""
    return (
        key in _SETTINGS
        or key.startswith(_SECTIONS)
        or any(key.startswith(begins) and key.endswith(ends) for begins, ends in _BELOW)
    )


def is_path(key: str) -> bool:
    """Whether the value is a path as a whole."""
    return names_a_file(key) and key.endswith(_PATHS)


def is_include(key: str) -> bool:
    """Whether a setting has git read a further file, perhaps under a condition."""
    return _INCLUDES.fullmatch(key) is not None


def paths_in(key: str, value: str) -> Iterator[str]:
    """What in a setting's value may be the path of a file, other than an include's.

    A word without a slash is a path only as an argument: as a program, it is looked up elsewhere.

    Args:
        key: In small letters, as git lists it.
        value: Of any length; what is beyond a bound is cut off.
    """
    if not names_a_file(key) or is_include(key):
        return
    if is_path(key):
        yield value
    elif key.startswith("alias.") and not value.startswith("!"):
        yield from _in_git_arguments(value)
    else:
        yield from _in_command(value[:_MAX_LETTERS].removeprefix("!"), _DEPTH)


def is_doubtful(path: str) -> bool:
    """Whether a word is as likely to be none: it is a path only if such a file is there (`clean` in `git-lfs clean`)."""
    return "/" not in path and not _HAS_SUFFIX.fullmatch(path)


def _in_git_arguments(value: str) -> Iterator[str]:
    """An alias of a git command names files of the work tree, which are not run; but it may bring settings along."""
    words = _words(value)
    for option, word in pairwise(words):
        key, _, inner = word.partition("=")
        if option == "-c" and inner:
            yield from paths_in(key.lower(), inner)


def _in_command(text: str, depth: int) -> Iterator[str]:
    before = ""
    for word in _words(text):
        if depth > 0 and any(letter.isspace() for letter in word):
            yield from _in_command(word, depth - 1)
        if before or "/" in word:
            yield from _in_word(word, is_expanded="$" in text or "`" in text or depth < _DEPTH)
        if before == "cd":
            yield f"{word}/."
        before = word


def _in_word(word: str, *, is_expanded: bool) -> Iterator[str]:
    """A word as it is, and what of it may be a path: behind `=`, between colons, behind what a shell fills in."""
    for part in {word, *word.partition("=")[2].split(":"), *word.split(":")}:
        if not part.strip(".") or part.startswith("-"):
            continue
        yield part
        rest = _FILLED_IN.sub("", part).strip("\"'`").lstrip("/")
        if is_expanded and rest and rest != part:
            yield rest


def _words(text: str) -> list[str]:
    """As a shell splits them; where it would refuse, at blanks."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()
