"""Texts of agents in Markdown: seen, and nothing else."""

import html
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ringfence.escape import visible
from ringfence.loop.report.markdown import block, cell, inline, span

_READERS = [MarkdownIt("gfm-like"), MarkdownIt("commonmark"), MarkdownIt("js-default")]
"""With links made of addresses, as GitHub does; and plainly."""
_HARMLESS = {"text", "code_inline"}
_SIGNS = "\\`*_{}[]()<>#+-.!|~&@:/=$^\"'%1aA \t\n\r\x1b\x00\u202e\ud800é漢"
_WORDS = st.sampled_from(
    ["http://a.example", "www.a.example", "a@b.example", "<script>", "![x](y)", "[a](b)", "```", "`", "``", "&lt;",
     "&#60;", "1.", "#", "-", "- [ ]", "> x", "***", "~~~", "[^1]", "|", "a|b", "<!--", "<a href=x>", "javascript:x",
     "word", "a_b_c", "x.example", "mailto:a@b.example", "\\", "\\|", "===", "---", "+", "`a`", "(`a b`).",
     "\n\n", "    "]
)  # fmt: skip
_TEXTS = (
    st.text(st.sampled_from(_SIGNS), max_size=40) | st.lists(_WORDS, max_size=8).map(" ".join) | st.text()
)


def _flat(tokens: Iterable[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_flat(token.children or ()))]


def _types(text: str, reader: MarkdownIt) -> set[str]:
    return {token.type for token in _flat(reader.parse(text))}


def _shown(text: str) -> str:
    return " ".join(visible(" ".join(text.split())).split())


@given(_TEXTS)
def test_a_text_within_a_line_is_words_and_code_and_nothing_else(text: str):
    """No link, picture, heading, list, line or markup comes of it, wherever it stands in the line."""
    for reader in _READERS:
        for line in (inline(text), f"- why: {inline(text)}", f"yes: {inline(text)} and"):
            found = _types(line, reader) - {
                "inline", "paragraph_open", "paragraph_close", "bullet_list_open", "bullet_list_close",
                "list_item_open", "list_item_close",
            }  # fmt: skip
            assert found <= _HARMLESS
            if not line.startswith("-"):
                assert "bullet_list_open" not in _types(line, reader)


@given(_TEXTS)
def test_a_text_within_a_line_is_read_as_it_was_written(text: str):
    """Whoever renders it shows each visible character once, line breaks aside; only the marks of code go."""
    children = _flat(_READERS[0].parseInline(inline(text)))
    said = "".join(token.content for token in children if token.type in _HARMLESS)
    assert said.replace("`", "").replace(" ", "") == _shown(text).replace("`", "").replace(" ", "")


@given(_TEXTS.filter(lambda text: bool(text.split())))
def test_a_span_is_one_piece_of_code(text: str):
    """Whatever backticks are in it."""
    for reader in _READERS:
        (found,) = [token for token in _flat(reader.parseInline(span(text))) if token.type != "inline"]
        assert (found.type, found.content) == ("code_inline", _shown(text))


@given(_TEXTS)
def test_a_block_is_one_block_of_code_with_all_of_its_lines(text: str):
    """It ends where it ends, not where the text wants it to."""
    for reader in _READERS:
        (found,) = reader.parse(block(text))
        assert found.type == "fence"
        assert found.content.strip("\n") == visible(text).strip("\n").replace("\r\n", "\n")


@given(_TEXTS)
def test_a_cell_stays_one(text: str):
    """In a table no text begins another cell or row."""
    table = f"| a | b |\n|---|---|\n| {cell(text)} | end |\n"
    tokens = _flat(_READERS[0].parse(table))
    cells = [token for token in tokens if token.type == "td_open"]
    assert len(cells) == 2
    assert {token.type for token in tokens} & {"link_open", "image", "html_inline", "html_block"} == set()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A member owes what it shares.", "A member owes what it shares."),
        ("Ledger.balances() is a dict.", "`Ledger.balances()` is a dict."),
        ("see `python3 -m kitty`, then", "see `python3 -m kitty`, then"),
        ("\x1b[31mred", r"`\x1b[31mred`"),
        ("1. first", "`1.` first"),
        ("it's well-known (really)!", "it's well-known (really)!"),
        ("add(2, 3) is 5, add(add(1, 2), 3) 6.", "`add(2, 3)` is 5, `add(add(1, 2), 3)` 6."),
        ("Then x == 3, and f() -> [1, 2].", "Then x `==` 3, and `f()` `->` `[1, 2]`."),
        ("open( is never closed", "`open(` is never closed"),
        ("", ""),
    ],
    ids=["prose", "name", "code", "escape", "list", "signs", "call", "operator", "open", "nothing"],
)
def test_prose_stays_prose(text: str, shown: str):
    """On a terminal one reads it as it is."""
    assert inline(text) == shown


def test_long_texts_are_cut():
    """A report has room for others, too."""
    assert len(inline("word " * 100_000)) < 5_000
    assert len(block("line\n" * 100_000)) < 5_000


@pytest.mark.timeout(90)
@pytest.mark.parametrize("text", ["` " + "x " * 60_000, "(`x " * 30_000, "`a`" + ")" * 100_000 + "x"])
def test_a_code_span_that_does_not_end_takes_no_time(text: str):
    """The time is in proportion to the length: its square would be hours."""
    assert len(inline(text, max_chars=10**6)) >= len(text.strip())


def test_html_in_a_text_is_text():
    """A renderer that lets markup through finds none."""
    assert html.escape("<b>") in _READERS[0].render(inline("a <b> c"))
