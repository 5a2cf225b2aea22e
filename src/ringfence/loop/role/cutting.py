"""Making a section shorter, and saying so."""

import re

from ringfence.frozen import frozen
from ringfence.loop.role.sections import Section

MOST_NOTE_CHARS = 240
"""No note is longer."""
_LEAST_CHARS = 200
"""Less than that of a section helps nobody."""
_FILE = re.compile(r'^diff --git (?:"?a/)?(.*?)"? "?b/', re.MULTILINE)


@frozen
class Shortened:
    """What is left of a section; `body` is empty if that is nothing."""

    body: str
    note: str


def shortened(section: Section, most_chars: int) -> Shortened:
    """At most `most_chars` characters of it, whole lines where there are any, and what is missing in words."""
    if most_chars < _LEAST_CHARS:
        return Shortened("", "")
    if section.trim == "middle":
        head, tail = _head(section.body, most_chars // 2 - 10), _tail(section.body, most_chars // 2 - 10)
        return Shortened(
            f"{head}\n[...]\n{tail}", _note(section, len(head) + len(tail), "Its middle is left out.")
        )
    if section.trim == "diff":
        return _shortened_diff(section, most_chars)
    body = _head(section.body, most_chars)
    return Shortened(body, _note(section, len(body), "Its end is left out."))


def _shortened_diff(section: Section, most_chars: int) -> Shortened:
    """The first changes, after a list of all files: what is not shown can be looked up."""
    files = list(dict.fromkeys(_FILE.findall(section.body)))
    listed = _listed(files, most_chars // 5)
    shown = _head(section.body, most_chars - len(listed) - 2)
    whole = len(_FILE.findall(shown)) - 1
    missing = f"Only the first {max(whole, 0)} of its {len(files)} files are surely shown whole."
    return Shortened(f"{listed}\n\n{shown}", _note(section, len(shown), missing))


def _listed(files: list[str], most_chars: int) -> str:
    names = ", ".join(files)
    if len(names) <= most_chars:
        return f"All {len(files)} files of the diff: {names}"
    shown = names[:most_chars].rpartition(", ")[0]
    return f"Of {len(files)} files of the diff the first {shown.count(', ') + 1 if shown else 0}: {shown}"


def _note(section: Section, shown_chars: int, missing: str) -> str:
    return f"[Cut: {shown_chars} of {len(section.body)} characters are shown. {missing}]"


def _head(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    kept = text[:most_chars]
    end = kept.rfind("\n")
    return kept[:end] if end > most_chars // 2 else kept


def _tail(text: str, most_chars: int) -> str:
    kept = text[-most_chars:]
    start = kept.find("\n")
    return kept[start + 1 :] if 0 <= start < most_chars // 2 else kept
