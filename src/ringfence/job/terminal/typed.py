"""What is typed on the way inside: the key that suspends is taken out."""

import re

_SUSPEND = re.compile(rb"\x1a|\x1b\[122;5(?::1)?u|\x1b\[27;5;122~")
"""Ctrl-Z as terminals tell it: the plain byte, by the protocol of kitty, and as xterm modifies keys."""
_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"


class Typed:
    """Splits what is typed at each Ctrl-Z. One within pasted text is part of that text."""

    def __init__(self) -> None:
        self._is_pasting = False

    def split(self, data: bytes) -> list[bytes]:
        """What comes before, between and after each Ctrl-Z; one piece if there is none."""
        pieces = [b""]
        while data:
            mark = _PASTE_ENDS if self._is_pasting else _PASTE_BEGINS
            part, found, data = data.partition(mark)
            if self._is_pasting:
                pieces[-1] += part + found
            else:
                first, *more = _SUSPEND.split(part)
                pieces[-1] += first
                pieces += more
                pieces[-1] += found
            self._is_pasting = self._is_pasting != bool(found)
        return pieces
