"""Renders templates, with control characters visible and all values escaped, so that no agent's text becomes markup."""

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ringfence.escape import visible
from ringfence.frozen import frozen
from ringfence.web.formats import FILTERS

_TAB = 4
_BARE: dict[str, Any] = {"nav": ()}
"""The values for a page without a frame, before sign-in."""


@frozen
class Page:
    """The result of a handler, to be rendered.

    Args:
        template: The name of the template's file, without the extension.
        values: The values that the template shows.
    """

    template: str
    values: dict[str, Any]


@frozen
class NextPage:
    """The result of an action that leads to another page.

    Args:
        path: The path of that page.
    """

    path: str


def render(
    request: Request, page: Page, *, chrome: dict[str, Any] | None = None, status: int = 200
) -> HTMLResponse:
    """Render a page.

    Args:
        request: The request for the page.
        page: The template and values.
        chrome: The values that the frame shows; None for a part of a page.
        status: The status of the response.
    """
    template = _environment().get_template(f"{page.template}.html.j2")
    text = template.render(
        **page.values, chrome=chrome or _BARE, path=request.url.path, query=request.query_params
    )
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)


def render_problem(
    status: int,
    title: str,
    message: str,
    chrome: dict[str, Any] | None = None,
    path: str = "",
    back: str = "",
) -> HTMLResponse:
    """Render a page that says why a request was rejected; `back` is the path of a page to go on with."""
    template = _environment().get_template("problem.html.j2")
    text = template.render(
        title=title, message=message, chrome=chrome or _BARE, path=path, query={}, back=back
    )
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)


def render_notice(message: str, *, is_good: bool, status: int = 200) -> HTMLResponse:
    """Render the result of an action as a part of a page."""
    text = _environment().get_template("notice.html.j2").render(message=message, is_good=is_good)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)


def render_part(template: str, **values: Any) -> str:
    """Render a part of a page as text."""
    return _environment().get_template(f"{template}.html.j2").render(**values, path="", query={})


def _print(value: object) -> object:
    if value is None:
        return ""
    return (
        value
        if isinstance(value, Undefined) or hasattr(value, "__html__")
        else visible(str(value), one_line=True)
    )


def _lines(text: str) -> Markup:
    """A text as markup that keeps its line breaks and tabs."""
    return Markup.escape(visible(str(text).expandtabs(_TAB)))


def _url(*parts: object, **query: Any) -> Markup:
    """The path of a page, with each part and value quoted."""
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", [])}
    path = "/" + "/".join(quote(str(part).encode("utf-8", "surrogatepass"), safe="") for part in parts)
    return Markup.escape(
        path + ("?" + urlencode(given, doseq=True, errors="backslashreplace") if given else "")
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_print,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS, lines=_lines)
    environment.globals["url"] = _url
    return environment
