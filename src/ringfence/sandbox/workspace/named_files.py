"""Which files a git setting names: a program, its arguments, or a path as a whole.

Git hands most of these values to a shell, in the top of the work tree (git-config(1)). A shell's text cannot be
told in full without running it, so each word that may be a path is taken for one: too much is guarded rather
than too little.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

_NAMES_A_FILE = re.compile(
    r"include(if\..*)?\.path|alias\..*|pager\..*|filter\..*|credential\.(.*\.)?helper|gpg\.(.*\.)?program"
    r"|gpg\.ssh\.(defaultkeycommand|allowedsignersfile|revocationfile)|submodule\.(.*\.)?update|sendemail\..*"
    r"|core\.(hookspath|fsmonitor|editor|pager|sshcommand|askpass|gitproxy|attributesfile|excludesfile"
    r"|alternaterefscommand)|sequence\.editor|interactive\.difffilter|diff\.external|diff\..*\.(command|textconv)"
    r"|merge\..*\.driver|(diff|merge|gui)tool\..*\.(cmd|path)|(browser|man)\..*\.(cmd|path)"
    r"|trailer\..*\.(cmd|command)|remote\..*\.(uploadpack|receivepack)|uploadpack\.packobjectshook"
    r"|init\.templatedir|commit\.template|hook\..*\.command|tar\..*\.command|imap\.tunnel|instaweb\..*"
    r"|svn\.authorsprog|lfs\..*\.(path|args|clean|smudge)",
    re.DOTALL,
)
"""Settings whose value is a program to git, or a file that it follows (git-config(1))."""
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


def is_path(key: str) -> bool:
    """Whether the value is a path as a whole."""
    return _NAMES_A_FILE.fullmatch(key) is not None and key.endswith(_PATHS)


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
    if not _NAMES_A_FILE.fullmatch(key) or is_include(key):
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
