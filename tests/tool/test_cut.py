import json

from hypothesis import given
from hypothesis import strategies as st

from ringfence.tool.text import cut_json_text, cut_text


def test_text_that_fits_is_untouched() -> None:
    """Nothing is cut within the budget."""
    assert cut_text("abc", 3) == "abc"


def test_head_and_tail_are_kept_and_the_cut_is_counted() -> None:
    """The marker says how many bytes are missing."""
    assert cut_text("aaaaé!zzzz", 8) == "aaaa\n[... 3 bytes cut ...]\nzzzz"


def test_the_count_includes_what_was_cut_before() -> None:
    """Where the text is a rest of something longer, the marker counts from the whole."""
    assert "[... 996 bytes cut ...]" in cut_text("a" * 10, 4, total_bytes=1000)


@given(st.text(), st.integers(2, 50))
def test_the_budget_holds(text: str, limit: int) -> None:
    """Whatever the text, the result is the budget and one marker long at most, and keeps both ends."""
    cut = cut_text(text, limit)
    assert len(cut) <= limit + 40
    assert cut.startswith(text[: limit - limit // 2])
    assert cut.endswith(text[len(text) - min(limit // 2, len(text)) :])


@given(st.text(alphabet="\0\x01ab\n"), st.integers(10, 200))
def test_the_budget_of_json_counts_escapes(text: str, limit: int) -> None:
    """Control characters take six characters in JSON, and the budget knows."""
    assert len(json.dumps(cut_json_text(text, limit))) <= limit + 64
