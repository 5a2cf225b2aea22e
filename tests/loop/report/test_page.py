"""The report as a page: nothing that an agent wrote is acted on."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from tests.loop.report.sample import lifelike, report_of

from ringfence.escape import visible
from ringfence.loop.report.html import render_html


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


def style_digest(page: str) -> str:
    """The digest of the page's style, as its policy names it."""
    style = page.partition("<style>")[2].partition("</style>")[0]
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


_TEXTS = st.text(min_size=1) | st.sampled_from(
    ["<script>alert(1)</script>", "</code></main>", '" onload="x', "' autofocus '", "<!--", "&lt;b&gt;", "]]>",
     "\x1b[2J", "\u202e", "{{ 7 * 7 }}", "{% raw %}", "</style>", "a\nb\tc"]
)  # fmt: skip
_PLAIN = [tag for tag, _ in read(render_html(report_of("plain"))).tags]


@given(_TEXTS)
def test_no_text_makes_an_element_or_an_attribute(text: str):
    """With any text in every place the page has the same elements, and attributes of ours alone."""
    found = read(render_html(report_of(text)))
    assert [tag for tag, _ in found.tags] == _PLAIN
    values = {value for _, attributes in found.tags for value in attributes.values()} - {None, "en", "utf-8"}
    ours = re.compile(r"#?(d\d+|story-\d+)(-\d+-L\d+)?|[a-z]+( [a-z]+)?")
    assert all(ours.fullmatch(str(value)) for value in values - _OF_THE_HEAD)


_OF_THE_HEAD = {
    value
    for tag, each in read(render_html(report_of("plain"))).tags
    if tag == "meta"
    for value in each.values()
}


@given(_TEXTS)
def test_a_text_is_read_as_it_was_written(text: str):
    """Neither escaped twice nor cut: what does not show is spelled out."""
    texts = read(render_html(report_of(text))).texts
    assert visible(text, one_line=True) in texts


def test_each_link_leads_to_a_part_of_the_page():
    """Evidence to its line in the diff of the story or the attempt, and each line to itself."""
    found = read(render_html(lifelike(hostile="x")))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    links = [str(attributes["href"]) for _, attributes in found.tags if "href" in attributes]
    assert len(ids) == len({*ids})
    assert {link.removeprefix("#") for link in links} <= {*ids}
    assert all(link.startswith("#") for link in links)
    assert links.count("#d1-1-L4") == 2


def test_the_page_names_the_whole_patch_where_lines_are_left_out():
    """A person can look at the rest."""
    page = render_html(report_of("/cache/1.patch"))
    assert "More lines are not shown; the whole patch: <code><bdi>/cache/1.patch</bdi></code>" in page
    assert "1 more files are not shown" in page
