"""From a briefing to the prompt of a role, within a budget of characters."""

import json
from collections.abc import Sequence
from pathlib import Path

from ringfence.errors import ConfigurationError
from ringfence.loop.role.answers import schema_for
from ringfence.loop.role.blocks import PREAMBLE, block, mark_for
from ringfence.loop.role.cutting import MOST_NOTE_CHARS, shortened
from ringfence.loop.role.model import Briefing, Cut, Prompt, Role
from ringfence.loop.role.sections import Section, sections_for
from ringfence.loop.role.templates import template_for

MOST_CHARS = 160_000
"""Some 40,000 tokens: an attempt is read with attention, and leaves room to look around."""


def prompt_for(
    role: Role, briefing: Briefing, *, most_chars: int = MOST_CHARS, template: Path | None = None
) -> Prompt:
    """What a role is asked.

    Goal, story, criteria and feedback are shown whole. The others follow in order, whole if there is room, else cut, and
    what is cut is said both in the prompt and beside it.

    Args:
        role: Who is asked.
        briefing: What is known.
        most_chars: No prompt is longer.
        template: The user's own words, in place of the package's.

    Raises:
        ConfigurationError: What is never cut does not fit; or the template is not usable.
    """
    words = template_for(role, template)
    sections = sections_for(role, briefing)
    mark = mark_for([section.body for section in sections])
    answer = f"```json\n{json.dumps(schema_for(role), separators=(',', ':'))}\n```"
    preamble = PREAMBLE.format(mark=mark)
    bodies = {section.name: section.body for section in sections if section.trim == "never"}
    others = dict.fromkeys((section.name for section in sections if section.trim != "never"), "")
    fixed = len(words.filled(briefing=_laid_out(preamble, sections, bodies, others, mark), answer=answer))
    if fixed > most_chars:
        raise ConfigurationError(
            f"the {role}'s prompt takes {fixed} characters with its story, criteria and feedback alone, and may have "
            f"{most_chars}: shorten these, or allow more"
        )
    bodies, notes = _fitted(sections, bodies, most_chars - fixed, mark)
    text = words.filled(briefing=_laid_out(preamble, sections, bodies, notes, mark), answer=answer)
    return Prompt(text, words.version, _cuts(sections, bodies, notes))


def _fitted(
    sections: Sequence[Section], fixed: dict[str, str], room: int, mark: str
) -> tuple[dict[str, str], dict[str, str]]:
    """What of each section is shown, and what is said about those that are cut."""
    others = [section for section in sections if section.trim != "never"]
    if sum(_cost(section, section.body, "", mark) for section in others) <= room:
        return {section.name: section.body for section in sections}, {}
    shared = room
    bodies, notes = dict(fixed), dict[str, str]()
    for section in others:
        most = min(room, int(shared * section.share))
        body, note = section.body, ""
        if _cost(section, body, note, mark) > most:
            cut = shortened(section, most - _cost(section, "", "", mark) - MOST_NOTE_CHARS)
            body, note = cut.body, cut.note
            notes[section.name] = note
        if body:
            bodies[section.name] = body
            room -= _cost(section, body, note, mark)
    return bodies, notes


def _cost(section: Section, body: str, note: str, mark: str) -> int:
    return len(block(section.title, body, mark=mark, kind=section.kind, note=note))


def _laid_out(
    preamble: str, sections: Sequence[Section], bodies: dict[str, str], notes: dict[str, str], mark: str
) -> str:
    shown = [
        block(
            section.title,
            bodies[section.name],
            mark=mark,
            kind=section.kind,
            note=notes.get(section.name, ""),
        )
        for section in sections
        if section.name in bodies
    ]
    left_out = [
        f"[Left out for lack of room: {section.name}, {len(section.body)} characters]\n"
        for section in sections
        if section.name in notes and section.name not in bodies
    ]
    return "\n".join([preamble, *shown, *left_out])


def _cuts(sections: Sequence[Section], bodies: dict[str, str], notes: dict[str, str]) -> tuple[Cut, ...]:
    return tuple(
        Cut(section.name, len(bodies.get(section.name, "")), len(section.body))
        for section in sections
        if section.name in notes
    )
