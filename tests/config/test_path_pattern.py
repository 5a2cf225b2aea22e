"""Patterns of paths: what they match, and that a hostile one costs no time."""

import re
from fnmatch import translate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from ringfence.config import load
from ringfence.config.path_pattern import MAX_DOUBLE_STARS, PathPatterns, check_pattern
from ringfence.errors import ConfigurationError

NAMES = st.text("ab", min_size=1, max_size=4)
GLOBS = st.sampled_from(
    ["**", "*", "a", "ab", "a*", "*b", "a*b", "*a*", "?", "a?b", "[ab]b", "[!a]*", "*a*b*"]
)
PATTERNS = st.builds(
    lambda segments, lead, tail: lead + "/".join(segments) + tail,
    st.lists(GLOBS, min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
    st.sampled_from(["", "/"]),
)


def matches(segments: list[str], names: list[str]) -> bool:
    """The reference: each way to place the directories of a `**` is tried; what is below a match matches."""
    if not segments:
        return True
    first, *rest = segments
    if first == "**":
        return matches(rest, names) or bool(names and matches(segments, names[1:]))
    return bool(names and re.match(translate(first), names[0]) and matches(rest, names[1:]))


def reference(pattern: str, path: str) -> bool:
    """What `.gitignore` says, tried in every way."""
    segments = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        segments = ["**", *segments]
    is_within = segments[-1] == "**"
    while len(segments) > 1 and segments[-1] == "**":
        segments.pop()
    needs_below = pattern.endswith("/") or (is_within and segments != ["**"])
    names = path.rstrip("/").split("/")
    if not needs_below:
        return segments == ["**"] or matches(segments, names)
    # Of a path that is a directory all names count, of a file's only those of the directories above it.
    folders = names if path.endswith("/") else names[:-1]
    return bool(folders) and (segments == ["**"] or matches(segments, folders))


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=5), st.booleans())
@example("**/a/**/b", ["a", "b", "a", "b"], False)
@example("a*b/", ["ab", "a"], False)
def test_it_matches_what_every_way_would(pattern: str, names: list[str], is_directory: bool) -> None:
    """No match is lost by trying no place twice."""
    path = "/".join(names) + ("/" if is_directory else "")
    assert PathPatterns([pattern]).match(path) == reference(pattern, path)


@pytest.mark.parametrize(
    "pattern",
    [
        "tests/",
        "tests",
        "/tests",
        "a/b",
        "*.lock",
        "**/x",
        "a/**",
        "a/**/z",
        "fix*/[0-9]?.txt",
        "a\\*b",
        "[!a]b",
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "tests",
        "tests/",
        "tests/x",
        "a/tests/x",
        "a/b",
        "a/b/c",
        "c/a/b",
        "x.lock",
        "a/z",
        "fix1/2x.txt",
        "a*b",
        "cb",
    ],
)
def test_it_reads_patterns_as_git_does(pattern: str, path: str) -> None:
    """Ordinary patterns mean what they mean in a `.gitignore`."""
    assert PathPatterns([pattern]).match(path) == GitIgnoreSpec.from_lines([pattern]).match_file(path)


def test_a_name_with_a_line_end() -> None:
    """No character of a name keeps a pattern from matching below it."""
    assert PathPatterns(["secret"]).match("a\nb/secret")


@pytest.mark.parametrize(
    "pattern",
    ["**/*a*/" * MAX_DOUBLE_STARS + "b", "*a*/" * 40 + "b", "[!b]*[!b]*/" * 15 + "b"],
    ids=["directories", "stars", "sets"],
)
def test_a_slow_pattern_is_matched_at_once(pattern: str) -> None:
    """The worst pattern within the bounds ends soon on the longest path."""
    check_pattern(pattern)
    assert not PathPatterns([pattern]).match("/".join(["a" * 250] * 16))


@pytest.mark.parametrize(
    "pattern",
    [
        "a/**/" * 30 + "b",
        "x" * 201,
        "*a*a*b",
        "a[b",
        "a\\",
        "[z-a]",
        "./tests/",
        "a//b",
        "a/../b",
        "[[:alpha:]]x",
    ],
    ids=[
        *("many-double-stars", "long", "many-stars", "no-bracket", "no-escaped", "no-range"),
        *("dot", "empty-name", "parent", "class"),
    ],
)
def test_what_is_out_of_bounds_is_refused(tmp_path: Path, pattern: str) -> None:
    """A project's file with such a pattern gets one line that names the place."""
    (tmp_path / "ringfence.yaml").write_text(f"sandbox:\n  protect: ['{pattern}']\n")
    with pytest.raises(ConfigurationError, match=r"ringfence\.yaml:2:\d+") as raised:
        load(tmp_path, environ={})
    assert "\n" not in str(raised.value)


def test_too_many_patterns_are_refused(tmp_path: Path) -> None:
    """A list of patterns has a bound, too."""
    (tmp_path / "ringfence.yaml").write_text(f"sandbox: {{protect: [{', '.join(['a'] * 101)}]}}\n")
    with pytest.raises(ConfigurationError):
        load(tmp_path, environ={})
