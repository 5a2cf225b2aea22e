"""`ringfence help`: prints the documentation in the package."""

from pathlib import Path
from typing import Annotated

import typer

import ringfence
from ringfence.errors import UsageError
from ringfence.escape import visible

_SECTIONS = ("tutorial", "how-to", "reference", "explanation")
_SHORT = {
    "containers": "how-to/containers",
    "fleets": "how-to/operate-a-fleet",
    "limits": "how-to/limit-a-run",
    "loops": "how-to/run-a-loop",
    "sandbox": "explanation/security",
    "user-namespaces": "how-to/allow-user-namespaces",
}
"""Topics whose names differ from those of their pages."""


def help_(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC", show_default=False, help="Name of a page; without it, all pages are listed."
        ),
    ] = None,
) -> None:
    """Show a page about a topic, such as exit codes."""
    pages = _pages()
    if topic is None:
        for name, page in pages.items():
            typer.echo(f"{name:<26}  {_title(page)}")
        return
    if topic not in pages:
        near = ", ".join(name for name in pages if topic in name) or "`ringfence help` lists them"
        raise UsageError(f"there is no topic {topic!r}; {near}")
    typer.echo(visible(pages[topic].read_text(encoding="utf-8")), nl=False)


def _pages() -> dict[str, Path]:
    """The pages by topic: from the installed package, or from `docs` in a checkout."""
    package = Path(ringfence.__file__).parent
    root = next(
        (docs for docs in (package / "docs", package.parents[1] / "docs") if (docs / "how-to").is_dir()),
        None,
    )
    if root is None:
        raise UsageError("this installation contains no pages; reinstall it from its wheel")
    pages = {page.stem: page for section in _SECTIONS for page in sorted((root / section).glob("*.md"))}
    pages |= {name: root / f"{page}.md" for name, page in _SHORT.items() if name not in pages}
    return dict(sorted(pages.items()))


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as stream:
        return next((line[2:].strip() for line in stream if line.startswith("# ")), "")
