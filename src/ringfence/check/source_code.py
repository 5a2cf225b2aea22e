"""What is read of source code: tests that stand inside product code of Rust, and the modules that tests import."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

_ATTRIBUTE = (
    r"#\s*!?\[\s*(?:cfg\s*\(\s*(?:(?:all|any)\s*\([^\]]{0,1000}?)?\btest\b"
    r"|(?:\w+\s*::\s*)*(?:test|rstest|test_case|quickcheck|proptest)\b)[^\]]{0,500}\]"
)
_TOKEN = re.compile(
    r"""//[^\n]*|(?P<comment>/\*)|\b[bc]?r(?P<hashes>\#*)".*?(?:"(?P=hashes)|\Z)|b?"(?:\\.|[^"\\])*+(?:"|\\?\Z)"""
    r"""|b?'(?:\\u\{[^}']*+\}|\\.[^']{0,10}|[^'\\])'|[{};]|(?P<attribute>""" + _ATTRIBUTE + ")",
    re.DOTALL,
)
"""What is not closed goes to the end, so that a file full of openings takes no longer than another.

What repeats begins with a character that nothing before it matches, or gives nothing back (`*+`): the time that a
hostile file takes grows with its size only.
"""
_DEPTHS = {"{": 1, "}": -1}
_WORD = re.compile(r"\w+")
_SOURCES = (
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
        ".vue",
        ".go",
        ".rs",
        ".java",
        ".kt",
    ),
    *(
        ".rb",
        ".pl",
        ".php",
        ".c",
        ".cc",
        ".cpp",
        ".h",
        ".hpp",
        ".cs",
        ".swift",
        ".scala",
        ".groovy",
        ".sh",
        ".bash",
    ),
    *(".json", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".sql", ".html", ".css"),
)
_MOST_COMPARED = 100
_COMMENT = re.compile(r"/\*|\*/")
_TEST_FUNCTION = re.compile(r"#\[test\]\s*fn\s+(\w+)\s*\(\s*\)\s*\{")


_ASSERTIONS = re.compile(r"\bmacro_rules\s*!\s*((?:r#)?(?:(?:debug_)?assert(?:_eq|_ne)?|panic))\b")
_CONDITION = re.compile(r"\b(cfg_attr\s*+\(|cfg!\s*+\(|cfg\s*+\()([^\];{}]*+)")
_TEST = re.compile(r"(?<![\w\"-])test\b(?![\"-])")
_NEGATION = re.compile(r"\bnot\s*+\(")
_OTHER_FILE = re.compile(r"\b(?:path|cfg)\b")


def reaches_tests(text: str) -> set[str]:
    """What in product code of Rust would be other code for the tests beside it, or other assertions."""
    text = _without_comments(text)
    found = {f"defines the macro {match[1]!r}" for match in _ASSERTIONS.finditer(text)}
    for match in _CONDITION.finditer(text):
        if _decides_for_tests(match[1], match[2]):
            found.add(f"has other code for tests: {' '.join(match[0].split())[:80]!r}")
    return found


def _decides_for_tests(kind: str, condition: str) -> bool:
    """Whether a condition of Rust makes other code, or another file, for tests than for the product."""
    if kind.startswith("cfg!"):
        return _TEST.search(condition) is not None
    if kind.startswith("cfg_attr"):
        return _TEST.search(condition) is not None and _OTHER_FILE.search(condition) is not None
    negation = _NEGATION.search(condition)
    return negation is not None and _TEST.search(condition, negation.end()) is not None


def becomes_binary(path: str, before: bytes, after: bytes) -> bool:
    """Whether a change puts a NUL into a file of text, which git shows no lines of in a diff from then on.

    Args:
        path: A file whose contents before the change are not known is text if its name ends as source code's does.
        before: The contents before the change; empty: the file is new, or too large to be read.
        after: The contents after it.
    """
    was_text = b"\0" not in before if before else path.endswith(_SOURCES)
    return was_text and b"\0" in after


def inline_tests(text: str) -> list[str]:
    """Each item of Rust that is only there for tests, from its attribute to its end, blanks at line ends aside."""
    found: list[str] = []
    end = 0
    for token in _tokens(text):
        if token["attribute"] and token.start() >= end:
            end = _end_of_item(text, token.end())
            found.append(_without_blanks(text[token.start() : end]))
    return found


def changed_inline_tests(before: str, after: str) -> list[str]:
    """Items of Rust for tests that are not in a file any more as they were.

    A module of tests may have further functions with `#[test]`, if their names are no words of what was there: a name
    that the tests use would have another meaning then.
    """
    left = Counter(inline_tests(after))
    gone = []
    for item in inline_tests(before):
        others = itertools.islice(left, _MOST_COMPARED)
        same = (
            item if left[item] else next((each for each in others if _has_only_more_tests(item, each)), None)
        )
        if same is None:
            gone.append(item)
        else:
            left -= Counter([same])
    return gone


def _has_only_more_tests(before: str, after: str) -> bool:
    words, rest, end, depth = frozenset(_WORD.findall(before)), "", 0, 0
    for token in _tokens(after):
        if token.start() < end:
            continue
        depth += _DEPTHS.get(token[0], 0)
        function = _TEST_FUNCTION.match(after, token.start()) if token["attribute"] and depth == 1 else None
        if function is not None and function[1] not in words:
            rest += after[end : token.start()].rstrip()
            end = _end_of_item(after, token.end())
            if after[end : end + 1] != "\n":  # what follows would belong to a comment before it
                return False
    return end > 0 and rest + after[end:] == before


def _without_comments(text: str) -> str:
    parts, position, end = list[str](), 0, 0
    while token := _TOKEN.search(text, position):
        position = _end_of_comment(text, token.end()) if token["comment"] else token.end()
        if token["comment"] or token[0].startswith("//"):
            parts += [text[end : token.start()], " "]
            end = position
    return "".join([*parts, text[end:]])


def _without_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def _tokens(text: str, position: int = 0) -> Iterator[re.Match[str]]:
    """Brackets, semicolons and attributes for tests, and the literals; nothing within comments, which may be nested."""
    while token := _TOKEN.search(text, position):
        position = token.end()
        if token["comment"]:
            position = _end_of_comment(text, position)
        else:
            yield token


def _end_of_comment(text: str, position: int) -> int:
    depth = 1
    for mark in _COMMENT.finditer(text, position):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)


def _end_of_item(text: str, position: int) -> int:
    depth = 0
    for token in _tokens(text, position):
        depth += _DEPTHS.get(token[0], 0)
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
