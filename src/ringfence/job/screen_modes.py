"""Tracks the modes that a program sets on a terminal, from its output, so that they can be reset when it is gone.

Only known modes are reset, and only if the program changed them.
"""

import re
from dataclasses import dataclass, field

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[(?P<mark>[<-?]?)(?P<numbers>[0-9;:]{0,64})(?P<between>[ -/]{0,2})(?P<final>[@-~])"
    rb"|(?P<other>[cZ=>])"
    rb"|(?P<charset>[()*+][ -~])"
    rb"|(?P<string>[P_])"
    rb"|\](?P<command>[0-9]{1,5})(?=[^0-9])"
    rb"|[78DEHM\\]"
    rb")"
)
_BEGUN = re.compile(rb"\x1b(?:\[[<-?]?[0-9;:]{0,64}[ -/]{0,2}|\][0-9]{0,5}|[()*+])?")
"""Matches the incomplete beginning of a sequence."""
_IGNORED = re.compile(rb"[\x00-\x06\x08-\x17\x19\x1c-\x1f\x7f]")
"""Characters that a terminal acts on, or ignores, within a sequence, which it then continues."""
_SHORT = re.compile(rb"\xc2([\x90\x9a\x9b\x9d\x9f])")
"""Single characters that stand for ESC and a letter."""
_ENQUIRY = b"\x05"
_ALTERNATE = ("1049", "1047", "47")
_AT_FIRST_ON = frozenset({"7", "25"})
"""Modes that are on by default: wrapping at the edge, and a visible cursor."""
_PRIVATE = frozenset(
    {"1", "5", "6", "7", "9", "25", "45", "66", "69", "1000", "1001", "1002", "1003", "1004", "1005", "1006"}
    | {"1007", "1015", "1016", "2004", "2026", "2031", "2048"}
)
"""Modes that would disturb a shell if they stayed changed: cursor keys, reversed colours, mouse, focus, paste, ..."""
_MOST_PUSHES = 16
_QUESTIONS = {b"c", b"n", b"t", b"x", b"p"}
_NO_QUESTIONS = {b"?h", b"?l", b"?s", b"?r", b"?J", b"?K", b">m", b" q", b">u", b"<u", b"=u"}
"""The sequences with a mark that no terminal answers."""
_QUIET_COMMANDS = {0, 1, 2, 7, 8, 9, 133, 633, 777}
_LINK = 8
_COLOURS = {4, 5, *range(10, 20)}
_ANSI = ("2", "4", "20")
"""ANSI modes: locked keys, insertion of letters, line ends of two characters."""


@dataclass
class _Screen:
    """State that each of the two screens of a terminal has separately."""

    keyboards: list[bytes] = field(default_factory=list)
    """Stack of keyboard modes (kitty's protocol), of which the last applies."""


class ScreenModes:
    """Follows a program's output."""

    def __init__(self) -> None:
        self.is_asked = False
        """Whether the terminal was sent a query, so that an answer may still arrive."""
        self._start_anew()
        self._rest = b""

    def see(self, output: bytes) -> None:
        """Process the next bytes, which may split a sequence anywhere. An unknown sequence may be a query."""
        self.is_asked = self.is_asked or _ENQUIRY in output
        data = _SHORT.sub(_in_two, self._rest + _IGNORED.sub(b"", output))
        end = 0
        for match in _SEQUENCE.finditer(data):
            self._pass_over(data[end : match.start()])
            end = match.end()
            self._take(match)
        start = data.rfind(b"\x1b", end)
        if start < 0 or not _BEGUN.fullmatch(data, start):
            start = len(data) - data.endswith(b"\xc2")
        self._pass_over(data[end:start])
        self._rest = data[start:]

    def _pass_over(self, data: bytes) -> None:
        self.is_asked = self.is_asked or b"\x1b" in data

    def undo(self) -> bytes:
        """The sequences that restore the terminal's previous state."""
        parts = [self._pops(self._screen), *(self._set(name, name in _AT_FIRST_ON) for name in self._changed)]
        if self._keys:
            parts.append(b"\x1b[>4m")
        if self._has_margins:
            parts.append(b"\x1b7\x1b[r\x1b8")
        if self._alternate:
            parts += [self._set(self._alternate, False), self._pops(self._main)]
        if self._is_keypad:
            parts.append(b"\x1b>")
        if self._has_charset:
            parts.append(b"\x1b(B\x0f")
        parts += [b"\x1b[%sl" % name.encode() for name in self._ansi]
        if self._has_link:
            parts.append(b"\x1b]8;;\x1b\\")
        if self._has_colours:
            parts.append(b"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\")
        if self._has_cursor:
            parts.append(b"\x1b[0 q")
        if self._is_coloured:
            parts.append(b"\x1b[0m")
        return b"".join(parts)

    def redo(self) -> bytes:
        """The sequences that restore the program's modes; the program must redraw its screen itself."""
        parts = [*self._main.keyboards]
        if self._alternate:
            parts += [self._set(self._alternate, True), b"\x1b[2J", *self._other.keyboards]
        parts += [self._set(name, name not in _AT_FIRST_ON) for name in self._changed]
        if self._keys:
            parts.append(b"\x1b[>" + self._keys + b"m")
        if self._is_keypad:
            parts.append(b"\x1b=")
        return b"".join(parts)

    @property
    def _screen(self) -> _Screen:
        return self._other if self._alternate else self._main

    def _start_anew(self) -> None:
        self._changed: dict[str, None] = {}
        self._alternate = ""
        self._main, self._other = _Screen(), _Screen()
        self._keys = b""
        self._has_margins = self._is_keypad = self._has_charset = False
        self._has_cursor = self._is_coloured = self._has_link = self._has_colours = False
        self._ansi: dict[str, None] = {}

    def _take(self, match: re.Match[bytes]) -> None:
        if match["final"]:
            self._take_control(match)
        elif match["charset"]:
            self._has_charset = True
        elif match["string"] or match["other"] == b"Z":
            self.is_asked = True
        elif match["command"]:
            self._take_command(int(match["command"]))
        elif match["other"] == b"c":
            self._start_anew()
        elif match["other"]:
            self._is_keypad = match["other"] == b"="

    def _take_command(self, number: int) -> None:
        self.is_asked = self.is_asked or number not in _QUIET_COMMANDS
        self._has_link = self._has_link or number == _LINK
        self._has_colours = self._has_colours or number in _COLOURS

    def _take_control(self, match: re.Match[bytes]) -> None:
        mark, final, numbers = match["mark"], match["final"], match["numbers"]
        form = mark + match["between"] + final
        self.is_asked = self.is_asked or final in _QUESTIONS or (len(form) > 1 and form not in _NO_QUESTIONS)
        if mark == b"?" and final in b"hl":
            for name in numbers.decode().split(";"):
                self._set_private(name, final == b"h")
        elif final == b"u" and mark:
            self._take_keyboard(mark, match[0], numbers)
        elif final == b"m":
            if mark == b">" and numbers.startswith(b"4"):
                self._keys = numbers if numbers[2:] not in (b"", b"0") else b""
            self._is_coloured = self._is_coloured or not mark
        elif final == b"r" and not mark:
            self._has_margins = bool(numbers)
        elif final == b"q" and match["between"] == b" ":
            self._has_cursor = True
        elif form in (b"h", b"l"):
            self._set_ansi(numbers.decode().split(";"), final == b"h")

    def _set_ansi(self, names: list[str], is_on: bool) -> None:
        for name in names:
            if name in _ANSI and is_on:
                self._ansi[name] = None
            else:
                self._ansi.pop(name, None)

    def _set_private(self, name: str, is_on: bool) -> None:
        if name in _ALTERNATE:
            self._alternate = name if is_on else ""
        elif name in _PRIVATE and is_on == (name in _AT_FIRST_ON):
            self._changed.pop(name, None)
        elif name in _PRIVATE:
            self._changed[name] = None

    def _take_keyboard(self, mark: bytes, whole: bytes, numbers: bytes) -> None:
        pushed = self._screen.keyboards
        if mark == b"<":
            count = int(numbers[:3] or b"1") if numbers[:3].isdigit() or not numbers else 1
            del pushed[max(0, len(pushed) - count) :]
        elif mark == b">" and len(pushed) < _MOST_PUSHES:
            pushed.append(whole)
        elif mark == b"=":
            pushed[-1:] = [b"\x1b[>" + numbers.partition(b";")[0] + b"u"]

    def _pops(self, screen: _Screen) -> bytes:
        return b"\x1b[<%du" % len(screen.keyboards) if screen.keyboards else b""

    def _set(self, name: str, is_on: bool) -> bytes:
        return b"\x1b[?%s%s" % (name.encode(), b"h" if is_on else b"l")


def _in_two(match: re.Match[bytes]) -> bytes:
    return bytes((0x1B, match[1][0] - 0x40))
