"""`ringfence help`: shows the help of commands, and the documentation in the package."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

import ringfence
from ringfence.cli.completion import complete_topics
from ringfence.cli.tree import COMMANDS, GROUPS, find_command, refuse_renamed
from ringfence.errors import UsageError
from ringfence.escape import visible

_KINDS = {
    "tutorial": "Tutorials (learn)",
    "how-to": "How-to guides (do)",
    "reference": "Reference (look up)",
    "explanation": "Explanation (understand)",
}
"""The kinds of pages by their directories."""
_FLEET_GUIDES = (
    "operate-a-fleet", "monitor-a-fleet", "schedules-and-triggers", "hooks-and-notifications", "answer-questions",
    "sessions-and-homes", "budgets-and-limits", "several-machines", "fleet-on-kubernetes", "sizing",
    "migrate-from-herdctl",
)  # fmt: skip
_INTEGRATION_GUIDES = (
    "mcp-server",
    "claude-code-in-a-sandbox",
    "evaluation-harnesses",
    "attestations",
)
_PROGRAM_GUIDES = ("from-python", "claude-agent-sdk", "own-agent", "own-tools", "own-backend")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_MAX_WIDTH = 120


def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            autocompletion=complete_topics,
            help="A command, like `runs show`, or a page like `exit-codes`; without it, all pages are listed.",
        ),
    ] = None,
) -> None:
    """Show the help of a command, or a page about a topic."""
    pages = _pages()
    if not words:
        typer.echo("\n".join(_listing(pages)))
        return
    name = " ".join(words)
    found = find_command(ctx.find_root(), words)
    if found is not None:
        typer.echo(found.get_help())
        for topic in [topic for topic in pages if topic.partition("/")[2] == name]:
            typer.echo(f"\nThe page about it: `ringfence help {topic}`")
    elif name in pages:
        _print_page(pages[name], pages)
    else:
        refuse_renamed(words)
        raise UsageError(f"there is no command or page {name!r}; {_hint(name, pages)}")


def topics() -> list[str]:
    """Return the names of all commands and pages."""
    return [*dict.fromkeys(path.partition(" ")[0] for path in COMMANDS), *_pages()]


def _hint(name: str, pages: dict[str, Path]) -> str:
    from difflib import get_close_matches

    known = [*COMMANDS, *GROUPS, *pages]
    near = dict.fromkeys([*get_close_matches(name, known), *(topic for topic in pages if name in topic)])
    if not near:
        return "`ringfence help` lists the pages, `ringfence --help` the commands"
    return f"did you mean {', '.join(map(repr, near))}?"


def _pages() -> dict[str, Path]:
    """Return the pages by topic, from the installed package or from `docs` in a checkout.

    A topic is the page's name; that of a page with the name of a command begins with its kind, as `reference/fleet`.
    """
    package = Path(ringfence.__file__).parent
    root = next(
        (docs for docs in (package / "docs", package.parents[1] / "docs") if (docs / "how-to").is_dir()),
        None,
    )
    if root is None:
        raise UsageError("this installation contains no pages; reinstall it from its wheel")
    pages = (page for kind in _KINDS for page in sorted((root / kind).glob("*.md")))
    return {_topic(page): page for page in pages}


def _topic(page: Path) -> str:
    is_shadowed = page.stem in GROUPS or page.stem in COMMANDS
    return f"{page.parent.name}/{page.stem}" if is_shadowed else page.stem


def _listing(pages: dict[str, Path]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for topic, page in pages.items():
        groups.setdefault(_heading(page), []).append(topic)
    width = max(map(len, pages))
    for heading, below in groups.items():
        yield heading
        yield from (f"  {topic:<{width}}  {_title(pages[topic])}" for topic in below)
        yield ""
    yield "`ringfence help TOPIC` shows a page, `ringfence help COMMAND` the help of a command."


def _heading(page: Path) -> str:
    kind = _KINDS[page.parent.name]
    if page.stem in _FLEET_GUIDES:
        return f"{kind}: fleets"
    if page.stem in _INTEGRATION_GUIDES:
        return f"{kind}: other tools and proof"
    return f"{kind}: Python programs and extensions" if page.stem in _PROGRAM_GUIDES else kind


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as stream:
        return next((line[2:].strip() for line in stream if line.startswith("# ")), "")


def _print_page(page: Path, pages: dict[str, Path]) -> None:
    """Print a page: rendered on a terminal, otherwise as Markdown that stands alone."""
    text = visible(_standalone(page, pages))
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.markdown import Markdown

    from ringfence.cli.render.console import open_console

    console = open_console()
    # This theme uses the terminal's own colours, which are legible on a light and on a dark background.
    rendered = Markdown(text, code_theme="ansi_dark", inline_code_theme="ansi_dark", hyperlinks=False)
    console.print(rendered, width=min(console.width, _MAX_WIDTH))


def _standalone(page: Path, pages: dict[str, Path]) -> str:
    """Return a page without comments, whose links name commands, addresses or files of the source."""
    parts = _CODE_BLOCK.split(page.read_text(encoding="utf-8"))
    topics_by_page = {path.resolve(): topic for topic, path in pages.items()}
    page = page.resolve()

    def replace(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if re.match(r"[a-z]+:", target):
            return link[0]
        if target.startswith("#"):
            return text
        file = (page.parent / target.partition("#")[0]).resolve()
        topic = topics_by_page.get(file)
        if topic is not None:
            command = f"`ringfence help {topic}`"
            return command if text == file.name else f"{text} [{command}]"
        return f"{text} [`{file.relative_to(page.parents[2])}` in the source]"

    return "".join(
        part if index % 2 else _LINK.sub(replace, _COMMENT.sub("", part)) for index, part in enumerate(parts)
    )
