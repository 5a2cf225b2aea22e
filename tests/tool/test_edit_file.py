import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ringfence.tool.files import EditRefused, edit_text

TEXT = st.text(alphabet="ab\n", max_size=30)
OLD = st.text(alphabet="ab\n", min_size=1, max_size=3)


def all_places(text: str, old: str) -> list[int]:
    """Every place, overlapping ones too, found the slow way."""
    return [at for at in range(len(text)) if text[at : at + len(old)] == old]


def replaced_by_hand(text: str, old: str, new: str) -> str:
    """Left to right, one character at a time."""
    out, at = "", 0
    while at < len(text):
        if text[at : at + len(old)] == old:
            out, at = out + new, at + len(old)
        else:
            out, at = out + text[at], at + 1
    return out


@given(TEXT, OLD, TEXT)
def test_one_occurrence_is_replaced_where_it_is(text: str, old: str, new: str) -> None:
    """Exactly one place: what is before and after it stays. Else it is refused with the count."""
    assume(old != new)
    places = all_places(text, old)
    if len(places) == 1:
        edit = edit_text(text, old, new)
        assert edit.text == text[: places[0]] + new + text[places[0] + len(old) :]
        assert edit.lines == (text[: places[0]].count("\n") + 1,)
    else:
        with pytest.raises(EditRefused, match=f"{len(places)} (times|occurrences)"):
            edit_text(text, old, new)


@given(TEXT, OLD, TEXT)
def test_replace_all_goes_from_left_to_right(text: str, old: str, new: str) -> None:
    """Every occurrence that does not overlap the one before is replaced; none is refused."""
    assume(old != new)
    if old not in text:
        with pytest.raises(EditRefused):
            edit_text(text, old, new, replace_all=True)
    else:
        edit = edit_text(text, old, new, replace_all=True)
        assert edit.text == replaced_by_hand(text, old, new)
        assert len(edit.lines) == text.count(old)


@pytest.mark.parametrize(
    ("text", "old", "hint"),
    [
        ("a\r\nb", "a\nb", "\\r\\n"),
        ("  a b", "   a b", "indentation"),
        ("abc", "xyz", "read the file again"),
    ],
    ids=["line ends", "indentation", "elsewhere"],
)
def test_a_miss_says_what_to_look_at(text: str, old: str, hint: str) -> None:
    """The usual reasons are named."""
    with pytest.raises(EditRefused) as caught:
        edit_text(text, old, "new")
    assert hint in str(caught.value)


def test_an_edit_that_changes_nothing_is_refused() -> None:
    """It is a mistake of the agent, and it is told."""
    with pytest.raises(EditRefused, match="nothing would change"):
        edit_text("a", "a", "a")


def test_many_lines_are_listed_in_part() -> None:
    """The refusal stays short."""
    with pytest.raises(EditRefused, match=r"50 times \(at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, \.\.\.\)"):
        edit_text("x\n" * 50, "x", "y")
