"""What a program has made of a terminal, and what undoes it."""

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.job.screen_modes import ScreenModes

CLAUDE = b"\x1b[?25h\x1b[?2004h\x1b[?1004h\x1b[?1049h\x1b[2J\x1b[?1000h\x1b[?1003h\x1b[?1006h\x1b[?25l\x1b[38;5;174mhi"
CODEX = (
    b"\x1b[?2004h\x1b[>4;0m\x1b[>7u\x1b[?1004h\x1b[?u\x1b[c\x1b[?1049h\x1b[>7u\x1b[?1007l\x1b[?1000h\x1b[?25l"
)
PIECES = [
    CLAUDE,
    CODEX,
    b"\x1b[3;20r",
    b"\x1b=",
    b"\x1b>",
    b"\x1bc",
    b"\x1b(0",
    b"\x1b[4h",
    b"\x1b[<1u",
    b"\x1b[=5;1u",
]
PIECES += [b"\x1b[?1049l", b"\x1b[2 q", b"\x1b[?7l", b"\x1b", b"\x1b[?", b"\x1b]0;title\x07", b"plain\r\n"]
OUTPUT = st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=12).map(b"".join)


def _modes(*outputs: bytes) -> ScreenModes:
    modes = ScreenModes()
    for output in outputs:
        modes.see(output)
    return modes


def test_what_claude_does_is_undone():
    """Paste, focus, mouse, cursor and colour, and then the screen that was there before."""
    undone = _modes(CLAUDE).undo()
    for mode in (b"2004l", b"1004l", b"1000l", b"1003l", b"1006l", b"25h", b"1049l"):
        assert b"\x1b[?" + mode in undone
    assert undone.endswith(b"\x1b[0m")


def test_ways_to_tell_keys_are_taken_back_on_each_screen():
    """A terminal keeps them for both; in the other one keys would come as sequences that no shell knows."""
    assert _modes(CODEX).undo().count(b"\x1b[<1u") == 2


def test_what_a_program_left_as_it_was_is_left_alone():
    """One that cleans up itself, and one that only prints, need nothing; above all no change of screens."""
    assert _modes(b"hello\r\n", CLAUDE, _modes(CLAUDE).undo()).undo() == b"\x1b[0m"
    assert _modes(b"total 8\r\napp.py\r\n").undo() == b""


def test_a_terminal_that_was_reset_is_as_it_was():
    """All that came before does not count."""
    assert _modes(CLAUDE, b"\x1bc").undo() == b""


def test_the_screen_is_that_before_the_program_again():
    """As a terminal shows it."""
    screen = pyte.Screen(40, 5)
    stream = pyte.ByteStream(screen)
    stream.feed(b"$ ringfence claude\r\n\x1b[?25l\x1b[?7l\x1b[31m")
    stream.feed(_modes(b"\x1b[?25l\x1b[?7l\x1b[31m").undo())
    assert not screen.cursor.hidden
    assert screen.cursor.attrs.fg == "default"


@given(OUTPUT, st.data())
def test_it_does_not_matter_where_output_is_cut(output: bytes, data: st.DataObject):
    """A sequence may come in two pieces."""
    cut = data.draw(st.integers(0, len(output)))
    assert _modes(output[:cut], output[cut:]).undo() == _modes(output).undo()


@given(OUTPUT)
def test_what_was_made_again_is_undone_the_same(output: bytes):
    """Going on after a suspension leaves no other terminal behind."""
    modes = _modes(output)
    again = _modes(modes.redo())
    for mode in (b"?1049", b"?1000", b"?2004", b"?1004"):
        assert (mode in modes.undo()) == (mode in again.undo())


@pytest.mark.parametrize(
    "question",
    [
        b"\x1b[c",
        b"\x1b[6n",
        b"\x1b[?u",
        b"\x1b]11;?\x07",
        b"\x1bP+q544e\x1b\\",
        b"\x1b[21t",
        b"\x1b[>q",
        b"\x1bZ",
        b"\x1b[?2;1S",
        b"\x1b[1$w",
        b"\x1b[1;1;1;1;9;9*y",
        b"\x1b[?4m",
        b"\x1b_Gi=1,a=q;AAAA\x1b\\",
        b"\x05",
        b"\x1b]4;" + b"1;#000000;" * 9 + b"1;?\x07",
        b"\x1b]1337;ReportCellSize\x07",
        b"\x1b]052;c;?\x07",
        b"\xc2\x9b6n",
        b"\x1b[\x006n",
        b"\x1b\n[6\x07n",
        b"\x1b[" + b"0" * 70 + b"6n",
        b"\x1b%!~",
        b"\x1b]x?\x07",
    ],
)
def test_a_question_to_the_terminal_is_noticed(question: bytes):
    """Its answer must not be typed into the user's shell. What nobody here knows may be one."""
    assert _modes(b"x", question).is_asked
    assert _modes(*(bytes((byte,)) for byte in question)).is_asked
    assert not _modes(
        b"\x1b[31mx\x1b]0;title\x07\x1b7\x1b8\x1b]8;;http://x\x1b\\x\x1b[?25l\x1b[2 q\xc3\xa9"
    ).is_asked


@pytest.mark.parametrize(
    ("done", "undone"),
    [
        (b"\x1b[4;20h", b"\x1b[20l"),
        (b"\x1b[2h", b"\x1b[2l"),
        (b"\x1b]8;;http://x\x1b\\", b"\x1b]8;;\x1b\\"),
        (b"\x1b]11;#000000\x07", b"\x1b]111\x1b\\"),
        (b"\x1b[?20\x0004h", b"\x1b[?2004l"),
        (b"\xc2\x9b?2004h", b"\x1b[?2004l"),
    ],
)
def test_what_hides_or_disturbs_is_undone(done: bytes, undone: bytes):
    """A locked keyboard, a link without end, text in the colour of the background, in whatever form it was said."""
    assert undone in _modes(done).undo()
