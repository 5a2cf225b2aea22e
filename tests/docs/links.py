"""The links of the project: where they are, and what is wrong with them.

`python -m tests.docs.links` checks all; with `--outside` it also requests those that lead to other hosts. One that does
not answer is counted as not checked and fails nothing, since not every machine reaches them; only an answer that the
page is gone does.
"""

import argparse
import ast
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for top in ("docs", "examples", "skills") for path in (ROOT / top).rglob("*.md")),
    ]
)
SOURCES = sorted(path for top in ("src", "scripts") for path in (ROOT / top).rglob("*.py"))
_ADDRESS = re.compile(r"""https?://[^\s<>"'`|{}()\[\]\\]+""")
_CODE = re.compile(r"`[^`]+`")
_FILE = re.compile(
    r"\b(?:docs|tests|scripts|skills|examples)/[\w./-]+\.(?:md|py|sh|toml|yaml|tsv)\b(?:#[\w-]+)?"
)
_EXAMPLE = re.compile(
    r"(?:.*\.)?(?:example|invalid|test|local|localhost|internal)|example\.(?:com|org|net)|[\d.]+|\[.*\]"
)
"""Hosts that only stand for others: names reserved for examples, and addresses of the machine or its network."""
_GONE = {404, 410}
_TIMEOUT_S = 15


@dataclass(frozen=True)
class Link:
    file: Path
    line: int
    target: str

    @property
    def is_outside(self) -> bool:
        return re.match(r"[a-z][a-z0-9+.-]*:", self.target) is not None

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.target}"


def links_of_page(page: Path) -> Iterator[Link]:
    """Yield the links and pictures of a Markdown page, as CommonMark reads it."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                yield Link(page, (token.map or [0])[0] + 1, unquote(str(target)))


def links_of_source(source: Path) -> Iterator[Link]:
    """Yield the addresses in docstrings and comments, and the files of the project that they name."""
    text = source.read_text(encoding="utf-8")
    prose = [(node.lineno, node.value) for node in _docstrings(ast.parse(text))]
    prose += [
        (number, line) for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("#")
    ]
    for first, words in prose:
        for number, line in enumerate(str(words).splitlines()):
            for found in _ADDRESS.findall(_CODE.sub("", line)):
                yield Link(source, first + number, found.rstrip(".,;:"))
            for found in _FILE.findall(_ADDRESS.sub("", line)):
                yield Link(source, first + number, f"/{found}")


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def fault_of(link: Link) -> str | None:
    """What is wrong with a link, without asking anybody."""
    if link.is_outside:
        return _fault_of_address(link.target)
    path, _, anchor = link.target.partition("#")
    file = (
        ROOT / path[1:]
        if path.startswith("/")
        else (link.file.parent / path).resolve()
        if path
        else link.file
    )
    if not file.exists():
        return "there is no such file"
    if not file.is_relative_to(ROOT):
        return "it leads out of the project"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"the page has no heading {anchor!r}"
    return None


def _fault_of_address(target: str) -> str | None:
    try:
        address = urlsplit(target)
        host, _ = address.hostname, address.port
    except ValueError as exc:
        return str(exc)
    if address.scheme not in {"http", "https"}:
        return "only http and https lead somewhere for everybody"
    if not host or address.username is not None:
        return "it needs a host, and no user"
    if is_example(target):
        return None
    if address.scheme != "https":
        return "it is not encrypted: write https"
    return None if re.fullmatch(r"(?:[a-z0-9-]+\.)+[a-z]{2,}", host) else f"no host has the name {host!r}"


def is_example(target: str) -> bool:
    """Whether an address only stands for another one."""
    return _EXAMPLE.fullmatch(urlsplit(target).hostname or "") is not None


@cache
def anchors(page: Path) -> frozenset[str]:
    """The fragments of a page's headings, as forges make them: one that comes again is numbered."""
    found: list[str] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    for opened, token in pairwise(tokens):
        if opened.type == "heading_open":
            words = "".join(child.content for child in token.children or [])
            slug = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
            before = sum(slug == re.sub(r"-\d+\Z", "", name) or slug == name for name in found)
            found.append(f"{slug}-{before}" if before else slug)
    return frozenset(found)


def all_links() -> list[Link]:
    """Every link of the pages and of the code."""
    pages = [link for page in PAGES for link in links_of_page(page)]
    return pages + [link for source in SOURCES for link in links_of_source(source)]


def _ask(target: str) -> tuple[str, str]:
    """Request an address; return whether it `answered`, is `gone` or was `not checked`, and why."""
    request = urllib.request.Request(target, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return "answered", str(response.status)
    except urllib.error.HTTPError as exc:
        with exc:
            return ("gone" if exc.code in _GONE else "not checked"), f"HTTP {exc.code}"
    except (OSError, ValueError) as exc:
        return "not checked", str(exc)[:100]


def main() -> int:
    """Print every fault; return 1 if there is one."""
    parser = argparse.ArgumentParser(description="Checks the links of pages, docstrings and comments.")
    parser.add_argument("--outside", action="store_true", help="also request links to other hosts")
    arguments = parser.parse_args()
    links = all_links()
    faults = {str(link): fault for link in links if (fault := fault_of(link))}
    outside = sorted({link.target for link in links if link.is_outside and not is_example(link.target)})
    answers = {"answered": 0, "gone": 0, "not checked": len(outside)}
    if arguments.outside:
        with ThreadPoolExecutor(8) as pool:
            asked = dict(zip(outside, pool.map(_ask, outside), strict=True))
        answers = {verdict: sum(one == verdict for one, _ in asked.values()) for verdict in answers}
        for target, (verdict, why) in asked.items():
            if verdict != "answered":
                print(f"{verdict}: {target}: {why}")
        faults |= {target: why for target, (verdict, why) in asked.items() if verdict == "gone"}
    for place, fault in faults.items():
        print(f"{place}: {fault}")
    inside = sum(not link.is_outside for link in links)
    said = ", ".join(f"{count} {verdict}" for verdict, count in answers.items() if count)
    print(f"{inside} links inside, {len(faults)} faults; of {len(outside)} addresses outside: {said}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
