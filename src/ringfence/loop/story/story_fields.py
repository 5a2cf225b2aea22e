"""Makes a story of what stands in a file."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ringfence.loop.story import bounds
from ringfence.loop.story.complaint import Complaints
from ringfence.loop.story.dialect import BLOCKED, DONE, Entry
from ringfence.loop.story.fields import Fields
from ringfence.loop.story.model import Dialect, Story, slug
from ringfence.loop.story.paths import within
from ringfence.loop.story.words import is_plain, is_printable, one_line, quoted

_ID = ("id",)
_TITLE = ("title", "name")
_DESCRIPTION = ("description",)
_CRITERIA = ("acceptance_criteria", "acceptance", "acceptanceCriteria", "criteria")
_PRIORITY = ("priority",)
NEEDS = ("depends_on", "dependsOn", "dependencies")
_FILES = ("files",)
_CHECK = ("check", "test_command")
_PASSES = ("passes",)
_STATUS = ("status",)
_QUESTION = ("question",)
_STEPS = ("steps",)
_PROMPT = ("prompt",)
_SUMMARY = ("summary",)

_EVERYWHERE = (
    _ID,
    _TITLE,
    _DESCRIPTION,
    _CRITERIA,
    _PRIORITY,
    NEEDS,
    _FILES,
    _CHECK,
    _PASSES,
    _STATUS,
    _QUESTION,
)
_BESIDES: Mapping[Dialect, tuple[tuple[str, ...], ...]] = {
    "features": (_STEPS,),
    "waves": (_PROMPT, _SUMMARY),
}


class StoryReader:
    """Reads the stories of one document.

    Args:
        dialect: Of the document.
        complaints: Where what is wrong is noted.
    """

    def __init__(self, dialect: Dialect, complaints: Complaints) -> None:
        self.notes: list[str] = []
        """What was taken otherwise than it was written."""
        self._dialect = dialect
        self._complaints = complaints
        self._made = Counter[str]()

    def read(self, entry: Entry, number: int) -> Story:
        """Make a story; what is wrong with it is noted, and something harmless stands for it.

        Args:
            entry: What stands in the file.
            number: Its place, from 1.
        """
        fields = Fields(entry.values, entry.path, self._complaints, f"story {number}: ")
        story_id = self._id(fields)
        if story_id is None:
            story_id = f"story {number}"
        else:
            fields.of = f"story {quoted(story_id)}: "
        title, description, summary = self._words(fields, story_id)
        priority = fields.number(*_PRIORITY)
        needs = fields.texts(*NEEDS, most_items=bounds.STORIES_LIMIT, most_chars=bounds.ID_CHARS)
        story = Story(
            id=story_id,
            title=title,
            description=description,
            criteria=self._criteria(fields, story_id, summary or title),
            priority=float(number) if priority is None else priority,
            depends_on=tuple(dict.fromkeys(needs or ())),
            files=_files(fields),
            check=_check(fields),
            is_done=_is_done(fields),
            question=_question(fields),
        )
        fields.slips((*_EVERYWHERE, *_BESIDES.get(self._dialect, ())))
        if entry.values.get("skipped") is True and not story.is_done:
            self.notes.append(f"story {quoted(story_id)} was skipped before; it is worked on again")
        return replace(story, extra=fields.extra())

    def _id(self, fields: Fields) -> str | None:
        if self._dialect == "features" and not fields.has("id"):
            return self._made_id(fields)
        found = fields.text(*_ID, most_chars=bounds.ID_CHARS)
        if found is not None and not is_printable(found):
            fields.wrong("id", f"{quoted(found)} holds characters that do not show; remove them")
            return None
        if not fields.has("id"):
            fields.missing(_ID, "give each story one of its own")
        return found

    def _made_id(self, fields: Fields) -> str | None:
        """An id that stays when features are moved, ticked off or given other steps."""
        description = fields.peek("description")
        if not isinstance(description, str):
            return None
        made = slug(f"{fields.peek('category') or ''}\n{description.strip()}", words=description)
        self._made[made] += 1
        return made if self._made[made] == 1 else f"{made}-{self._made[made]}"

    def _words(self, fields: Fields, story_id: str) -> tuple[str, str, str | None]:
        """Title, description and, of waves, the summary."""
        title = fields.text(fields.first(_TITLE), most_chars=bounds.LINE_CHARS)
        description = fields.text(*_DESCRIPTION, most_chars=bounds.TEXT_CHARS)
        summary = None
        if self._dialect == "waves":
            summary = fields.text(*_SUMMARY, most_chars=bounds.TEXT_CHARS)
            prompt = fields.text(*_PROMPT, most_chars=bounds.TEXT_CHARS)
            parts = dict.fromkeys(part for part in (summary, description, prompt) if part)
            description = "\n\n".join(parts) or None
        if title is None and description is None:
            if not any(fields.has(name) for name in (*_TITLE, *_DESCRIPTION, *_PROMPT, *_SUMMARY)):
                fields.missing(_TITLE, "say in a line what is to be built")
            return story_id, "", None
        if description is None and self._dialect != "features":
            self.notes.append(
                f"story {quoted(story_id)} has no description; its title is all that roles are told"
            )
        shown = one_line(title or str(description), bounds.LINE_CHARS if title else bounds.TITLE_CHARS)
        return shown, description or shown, summary

    def _criteria(self, fields: Fields, story_id: str, instead: str) -> tuple[str, ...]:
        names = (*_STEPS, *_CRITERIA) if self._dialect == "features" else _CRITERIA
        found = fields.texts(*names, most_items=bounds.CRITERIA_LIMIT, most_chars=bounds.CRITERION_CHARS)
        if found is None and self._dialect == "waves":
            self.notes.append(
                f"story {quoted(story_id)} has no criteria; what sums it up is taken for the only one"
            )
            return (instead,)
        if found is None:
            fields.missing(names, "write when the story is done, as a list of texts")
        elif not found and fields.peek(key := fields.key(names) or names[0]) == []:
            fields.wrong(key, "it is empty; write when the story is done, at least one text")
        return found or ()


def _files(fields: Fields) -> tuple[str, ...]:
    found: dict[str, None] = {}
    names = fields.texts(*_FILES, most_items=bounds.FILES_LIMIT, most_chars=bounds.PATH_CHARS)
    for index, text in enumerate(names or ()):
        try:
            found[within(text)] = None
        except ValueError as exc:
            fields.wrong("files", str(exc), index=index)
    return tuple(found)


def _check(fields: Fields) -> str | None:
    found = fields.text(*_CHECK, most_chars=bounds.COMMAND_CHARS)
    if found is not None and not is_plain(found, lines=True):
        fields.wrong(fields.key(_CHECK) or _CHECK[0], "it holds control characters; remove them")
        return None
    return found


def _is_done(fields: Fields) -> bool:
    status = fields.text(*_STATUS, most_chars=bounds.LINE_CHARS)
    passes = fields.flag(*_PASSES)
    return passes or (status or "").lower() in DONE


def _question(fields: Fields) -> str | None:
    found = fields.text(*_QUESTION, most_chars=bounds.TEXT_CHARS)
    if found is None and str(fields.peek("status")).lower() in BLOCKED:
        notes = fields.peek("notes")
        is_told = isinstance(notes, str) and notes.strip()
        return (
            one_line(notes, bounds.LINE_CHARS)
            if is_told
            else "its status says so, and no question is written"
        )
    return found
