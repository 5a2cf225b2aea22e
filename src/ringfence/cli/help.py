"""`ringfence help`: pages about topics that errors name, which the package carries."""

from importlib.resources import files
from typing import Annotated

import typer

from ringfence.errors import UsageError
from ringfence.escape import visible


def help_(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", show_default=False, help="Default: list the topics.")
    ] = None,
) -> None:
    """Show a page about a topic, such as exit codes."""
    pages = {page.name.removesuffix(".md"): page for page in files("ringfence.cli.topics").iterdir()}
    topics = sorted(name for name, page in pages.items() if page.name.endswith(".md"))
    if topic is None:
        for name in topics:
            title = pages[name].read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            typer.echo(f"{name:<16}  {title}")
        return
    if topic not in topics:
        raise UsageError(f"there is no topic {topic!r}; there are: {', '.join(topics)}")
    typer.echo(visible(pages[topic].read_text(encoding="utf-8")), nl=False)
