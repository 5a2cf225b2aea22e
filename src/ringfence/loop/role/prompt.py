"""Builds the prompt of a role from a briefing, within a limit of characters; shortened sections are marked."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.loop.role.blocks import PREAMBLE, block, mark_for, plain
from ringfence.loop.role.sections import Briefing, Section

_NOTE_CHARS = 240
"""Limit for the length of a note."""
_LEAST_CHARS = 200
"""The shortest part of a section that is worth showing."""
_TEMPLATE_BYTES = 1 << 18
_PLACE = re.compile(r"\{\{\s*(\w*)\s*\}\}")
_PLACES = ("briefing", "answer")
_FILE = re.compile(r'^diff --git (?:"?a/)?(.*?)"? "?b/', re.MULTILINE)


@frozen
class Cut:
    """A section of a prompt that is not shown completely."""

    section: str
    shown_chars: int
    """Number of characters shown; 0: the section is left out."""
    all_chars: int

    def __str__(self) -> str:
        if not self.shown_chars:
            return f"{self.section}: left out ({self.all_chars} characters)"
        return f"{self.section}: {self.shown_chars} of {self.all_chars} characters"


@frozen
class Prompt:
    """The prompt of a role."""

    text: str
    version: str
    """Version of the template: 12 hexadecimal digits of its SHA-256."""
    cuts: tuple[Cut, ...] = ()


@frozen
class _Shown:
    """The shown part of a section."""

    body: str
    """The text; empty: the section is left out."""
    note: str = ""
    """A note that says what is missing."""


def build_prompt(
    role: str,
    sections: Sequence[Section],
    briefing: Briefing,
    *,
    answer: str,
    max_chars: int,
    template: Path | None,
) -> Prompt:
    """Build a prompt from the sections that are not empty.

    Sections that are never shortened are shown completely. The others follow in order, completely if there is room.

    Args:
        role: The role, which selects the built-in template and is named in messages.
        sections: The sections, in order.
        briefing: The contents of the sections.
        answer: The description of the answer, for its place in the template.
        max_chars: Limit for the length of the prompt.
        template: The user's own template, instead of the built-in one.

    Raises:
        ConfigurationError: Sections that are never shortened do not fit; or the template is not usable.
    """
    words = _own_template(template) if template else _template(role)
    texts = {section: text for section in sections if (text := plain(section.body(briefing)).strip("\n"))}
    mark = mark_for(texts.values())

    def fill(shown: Mapping[Section, _Shown]) -> str:
        values = {"briefing": _lay_out(texts, shown, mark), "answer": answer}
        return _PLACE.sub(lambda match: values[match[1]], f"{words.strip()}\n")

    least = {section: _Shown(text if section.trim == "never" else "") for section, text in texts.items()}
    fixed = len(fill(least))
    if fixed > max_chars:
        raise ConfigurationError(
            f"the {role}'s prompt takes {fixed} characters with its story, criteria and feedback alone, and may have "
            f"{max_chars}: shorten these, or allow more"
        )
    shown = _fit(texts, max_chars - fixed, mark)
    cuts = (Cut(section.name, len(shown[section].body), len(text)) for section, text in texts.items()
            if shown[section].body != text)  # fmt: skip
    version = hashlib.sha256(f"{PREAMBLE}\0{words}".encode()).hexdigest()[:12]
    return Prompt(fill(shown), version, tuple(cuts))


def _template(role: str) -> str:
    return resources.files(__package__).joinpath(f"{role}.md").read_text("utf-8")


def _own_template(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(_TEMPLATE_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(
            f"the prompt cannot be read: {exc}; give a text file in UTF-8", file=file
        ) from exc
    if len(data) > _TEMPLATE_BYTES:
        raise ConfigurationError(f"the prompt is longer than {_TEMPLATE_BYTES} bytes; shorten it", file=file)
    for match in _PLACE.finditer(text):
        if match[1] not in _PLACES:
            line = text.count("\n", 0, match.start()) + 1
            known = ", ".join(f"{{{{{name}}}}}" for name in _PLACES)
            raise ConfigurationError(
                f"the prompt has a place {match[0]!r}; known are {known}", file=file, line=line
            )
    for name in _PLACES:
        count = sum(match[1] == name for match in _PLACE.finditer(text))
        if count != 1:
            raise ConfigurationError(
                f"the prompt has {{{{{name}}}}} {count} times; put it in once", file=file
            )
    return text


def _lay_out(texts: Mapping[Section, str], shown: Mapping[Section, _Shown], mark: str) -> str:
    blocks = [_block(section, each, mark) for section, each in shown.items() if each.body]
    left_out = [
        f"[Left out for lack of room: {section.name}, {len(texts[section])} characters]\n"
        for section, each in shown.items()
        if not each.body
    ]
    return "\n".join([PREAMBLE.format(mark=mark), *blocks, *left_out])


def _block(section: Section, shown: _Shown, mark: str) -> str:
    return block(section.title, shown.body, mark=mark, kind=section.kind, note=shown.note)


def _fit(texts: Mapping[Section, str], room: int, mark: str) -> dict[Section, _Shown]:
    """Return the shown part of each section; `room` is for those that may be shortened."""
    shown = {section: _Shown(text) for section, text in texts.items()}
    others = [section for section in texts if section.trim != "never"]
    if sum(len(_block(section, shown[section], mark)) for section in others) <= room:
        return shown
    shared = room
    for section in others:
        most = min(room, int(shared * section.share))
        if len(_block(section, shown[section], mark)) > most:
            frame = len(_block(section, _Shown(""), mark)) + _NOTE_CHARS
            shown[section] = _truncate(texts[section], section, most - frame)
        if shown[section].body:
            room -= len(_block(section, shown[section], mark))
    return shown


def _truncate(text: str, section: Section, max_chars: int) -> _Shown:
    """Shorten a text to at most `max_chars` characters, in whole lines if there are any."""
    if max_chars < _LEAST_CHARS:
        return _Shown("")
    if section.trim == "diff":
        return _truncate_diff(text, max_chars)
    if section.trim == "middle":
        half = max_chars // 2 - 10
        head, tail = _head(text, half), _tail(text, half)
        note = _note(len(head) + len(tail), text, "Its middle is left out.")
        return _Shown(f"{head}\n[...]\n{tail}", note)
    head = _head(text, max_chars)
    return _Shown(head, _note(len(head), text, "Its end is left out."))


def _truncate_diff(text: str, max_chars: int) -> _Shown:
    """Return the first changes, after a list of all files, so that a reader can look the others up."""
    files = list(dict.fromkeys(_FILE.findall(text)))
    listed = _list_files(files, max_chars // 5)
    head = _head(text, max_chars - len(listed) - 2)
    whole = max(len(_FILE.findall(head)) - 1, 0)
    missing = f"Only the first {whole} of its {len(files)} files are surely shown whole."
    return _Shown(f"{listed}\n\n{head}", _note(len(head), text, missing))


def _list_files(files: Sequence[str], max_chars: int) -> str:
    names = ", ".join(files)
    if len(names) <= max_chars:
        return f"All {len(files)} files of the diff: {names}"
    shown = names[:max_chars].rpartition(", ")[0]
    return f"Of {len(files)} files of the diff the first {shown.count(', ') + 1 if shown else 0}: {shown}"


def _note(shown_chars: int, text: str, missing: str) -> str:
    return f"[Cut: {shown_chars} of {len(text)} characters are shown. {missing}]"


def _head(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    kept = text[:max_chars]
    end = kept.rfind("\n")
    return kept[:end] if end > max_chars // 2 else kept


def _tail(text: str, max_chars: int) -> str:
    kept = text[-max_chars:]
    start = kept.find("\n")
    return kept[start + 1 :] if 0 <= start < max_chars // 2 else kept
