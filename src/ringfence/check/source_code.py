"""Tests that stand inside product code, as Rust has them."""

import re
from collections.abc import Iterable

_ATTRIBUTE = re.compile(
    r"#\s*!?\[\s*(?:cfg\s*\(\s*(?:(?:all|any)\s*\([^\]]{0,200}?)?\btest\b"
    r"|(?:\w+\s*::\s*)*(?:test|rstest|test_case|quickcheck|proptest)\b)[^\]]{0,500}\]"
)
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|\bb?r(?P<hashes>\#*)".*?(?:"(?P=hashes)|\Z)|b?"(?:\\.|[^"\\])*(?:"|\Z)"""
    r"""|b?'(?:\\.[^']{0,10}|[^'\\])'|[{};]""",
    re.DOTALL,
)
"""What is not closed goes to the end, so that a file full of openings takes no longer than another."""


_OTHER_CODE = "has other code for tests:"
_REACHES_TESTS = (
    (
        "defines the macro",
        re.compile(
            r"\bmacro_rules!\s*(?:/\*.{0,200}?\*/\s*|//[^\n]*\s*)*((?:r#)?(?:debug_)?assert(?:_eq|_ne)?|panic)\b"
        ),
    ),
    (_OTHER_CODE, re.compile(r"(cfg_attr\s*\(\s*(?:not\s*\(\s*)?test\b[^\]]{0,80}\b(?:path|cfg)\b)")),
    (_OTHER_CODE, re.compile(r"(cfg!\s*\(\s*(?:not\s*\(\s*)?test\b|cfg\s*\(\s*not\s*\(\s*test\b)")),
)


def reaches_tests(text: str) -> set[str]:
    """What in product code of Rust would be other code for the tests beside it, or other assertions."""
    return {
        f"{what} {' '.join(match[1].split())[:80]!r}"
        for what, pattern in _REACHES_TESTS
        for match in pattern.finditer(text)
    }


def inline_tests(text: str) -> list[str]:
    """Each item of Rust that is only there for tests, from its attribute to its end, blanks at line ends aside."""
    found: list[str] = []
    end = 0
    for attribute in _ATTRIBUTE.finditer(text):
        if attribute.start() >= end:
            end = _end_of_item(text, attribute.end())
            found.append("\n".join(line.rstrip() for line in text[attribute.start() : end].splitlines()))
    return found


def _end_of_item(text: str, position: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, position):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
        if token[0] in ("}", ";") and depth <= 0:
            return token.end()
    return len(text)


_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([^#;\n]+))", re.MULTILINE)
_NAME = re.compile(rb"[ \t]*(\w+)")


def imported_modules(sources: Iterable[bytes]) -> frozenset[str]:
    """The first parts of the names of all modules that some files import by a line of its own."""
    return frozenset(
        name[1].decode("utf-8", "replace")
        for data in sources
        for line in _IMPORT.finditer(data)
        for part in (line[1] or line[2]).split(b",")
        if (name := _NAME.match(part)) is not None
    )
