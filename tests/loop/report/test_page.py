"""The report as a page: nothing that an agent wrote is acted on."""

import base64
import hashlib
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.escape import visible
from ringfence.loop.report.element import element, text


class _Reader(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", {}))


def read(page: str) -> _Reader:
    """A page, taken apart."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader


_TEXTS = st.text() | st.sampled_from(
    ["<script>alert(1)</script>", "</code></main>", '" onload="x', "' autofocus '", "<!--", "&lt;b&gt;", "]]>",
     "\x1b[2J", "\u202e"]
)  # fmt: skip


@given(_TEXTS)
def test_text_in_an_element_is_read_as_that_text(said: str):
    """In its place there are no tags, and no attributes."""
    found = read(element("p", said, class_="x"))
    assert found.tags == [("p", {"class": "x"})]
    assert "".join(found.texts) == visible(said, one_line=True)


@given(_TEXTS)
def test_text_in_an_attribute_stays_there(said: str):
    """It cannot leave its quotes."""
    found = read(element("p", title=said))
    assert found.tags == [("p", {"title": visible(said, one_line=True)})]


@given(_TEXTS)
def test_a_page_that_is_escaped_twice_would_show_it(said: str):
    """What was made here passes as it is; what looks like it does not."""
    assert element("p", element("b", said)) == f"<p><b>{text(said)}</b></p>"
    assert element("p", str(element("b", said))) != element("p", element("b", said))


@pytest.mark.parametrize("name", ["p onload=x", "P", "", "a/b"])
def test_names_are_ours(name: str):
    """No text becomes the name of an element."""
    with pytest.raises(ValueError, match="no name in HTML"):
        element(name)


def style_digest(page: str) -> str:
    """The digest of the page's style, as its policy names it."""
    style = page.partition("<style>")[2].partition("</style>")[0]
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
