"""Which paths are tests, by the conventions of each runner.

A path is taken as hostile text: it is only ever compared, never opened.
"""

import re
import unicodedata
from collections.abc import Collection

_DIRECTORIES = {
    "pytest": {"test", "tests"},
    "unittest": {"test", "tests"},
    "node": {"test", "tests", "__tests__", "__mocks__", "__snapshots__", "spec", "e2e", "cypress"},
    "go": {"testdata"},
    "cargo": {"tests"},
    "maven": set[str](),
}
_FILES = {
    "pytest": re.compile(r"test_.*\.py|.*_test\.py|conftest\.py|test.*\.txt"),
    "unittest": re.compile(r"test.*\.py|.*_test\.py"),
    "node": re.compile(
        r"(?:.*[._-](?:test|spec)|test|test-.*)\.(?:[cm]?[jt]s|[jt]sx)|.*\.snap(?:shot)?|.*\.feature"
    ),
    "go": re.compile(r".*_test\.go"),
    "cargo": re.compile(r"(?!)"),
    "maven": re.compile(r"(?:Test.*|.*Tests?|.*TestCase|.*IT|IT.*|.*ITCase)\.(?:java|kt|groovy|scala)"),
}
_MAVEN_MAIN = re.compile(r"(?:.*/)?src/main/.*", re.DOTALL)
_MAVEN_TEST = re.compile(r"(?:.*/)?src/(?:test|it|integration-?[tT]est)/.*", re.DOTALL)


def is_test_path(path: str, runners: Collection[str] = ()) -> bool:
    """Whether it is a test file, or lies where tests keep their data.

    Args:
        path: Relative, with slashes.
        runners: Whose conventions count; none: everybody's.
    """
    return any(_is_test_of(runner, path) for runner in runners or _FILES if runner in _FILES)


def _is_test_of(runner: str, path: str) -> bool:
    *directories, name = path.split("/")
    if runner == "maven":
        if _MAVEN_TEST.fullmatch(path):
            return True
        return bool(_FILES["maven"].fullmatch(name)) and not _MAVEN_MAIN.fullmatch(path)
    return not _DIRECTORIES[runner].isdisjoint(directories) or bool(_FILES[runner].fullmatch(name))


_CACHES = frozenset(
    {
        *(
            "__pycache__",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".hypothesis",
            ".tox",
            ".nox",
            ".pytype",
        ),
        *(".nyc_output", ".eslintcache", ".coverage", ".DS_Store"),
    }
)
_CACHE_FILES = re.compile(r".*\.py[co]|\.coverage\..*|npm-debug\.log.*", re.DOTALL)


def is_leftover(path: str) -> bool:
    """Whether runners and checkers leave it behind: nobody wrote it, and it is part of nobody's work."""
    return not _CACHES.isdisjoint(path.split("/")) or bool(_CACHE_FILES.fullmatch(path.rpartition("/")[2]))


def is_plain_path(path: str) -> bool:
    """Whether it is relative, stays in the tree, has no empty or dotted part, and is not of git's own directory."""
    parts = path.split("/")
    return (
        bool(path)
        and "\0" not in path
        and not any(part in ("", ".", "..") or _is_git(part) for part in parts)
    )


def _is_git(part: str) -> bool:
    """As git judges it for all file systems: case, ignorable characters, trailing dots, short names, streams."""
    return folded(part).split(":")[0].rstrip(". ") in (".git", "git~1")


_IGNORABLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def folded(text: str) -> str:
    """What file systems that ignore case, the form of accents, or invisible characters make of it."""
    if text.isascii():
        return text.lower().rstrip(". ")
    return _IGNORABLE.sub("", unicodedata.normalize("NFKC", text).casefold()).rstrip(". ")
