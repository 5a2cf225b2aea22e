"""Defines the contract of a role: the sections of its prompt, its template, and how its answer is parsed."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic

from ringfence.loop.role.answer import A, WorkAnswer, read_answer, read_work, strict_schema
from ringfence.loop.role.prompt import Prompt, build_prompt
from ringfence.loop.role.sections import SECTIONS, Briefing
from ringfence.loop.rows import StoryRow
from ringfence.loop.settings import RoleName

PROMPT_CHARS = 160_000
"""About 40,000 tokens, so that an attempt is read with attention and there is room for further reading."""


class Role(ABC, Generic[A]):
    """A role. Its prompt template is the file `NAME.md` beside it; a user may provide another one."""

    name: RoleName
    answer: type[A]
    """The type of its answer."""
    markers: tuple[str, ...] = ()
    """Properties that only its answer is expected to have; empty: it need not answer."""
    shown: tuple[str, ...]
    """The sections of its prompt, by their names in `SECTIONS`, in order."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its answer."""
        return strict_schema(self.answer)

    def prompt(
        self, briefing: Briefing, *, max_chars: int = PROMPT_CHARS, template: Path | None = None
    ) -> Prompt:
        """Build its prompt from the briefing; no prompt is longer than `max_chars`.

        Raises:
            ConfigurationError: Goal, story, criteria and feedback, which are never shortened, do not fit; or the user's
            `template` is not usable.
        """
        answer = f"```json\n{json.dumps(self.schema, separators=(',', ':'))}\n```"
        sections = [SECTIONS[name] for name in self.shown]
        return build_prompt(
            self.name, sections, briefing, answer=answer, max_chars=max_chars, template=template
        )

    def read(self, text: str, structured: Any = None) -> A:
        """Return its answer, from its last message or from its runtime's structured answer.

        Raises:
            Unparseable: There is not exactly one answer of the type.
        """
        return read_answer(self.name, self.answer, self.markers, text, structured)


class AuthorRole(Role[WorkAnswer]):
    """A role that changes files, which count even without an answer; it must answer only to ask a question."""

    answer = WorkAnswer

    @abstractmethod
    def base_of(self, row: StoryRow) -> str | None:
        """Return the commit on which the role's attempts at a story are made; None if there is none yet."""

    @abstractmethod
    def steps_of(self, attempt: int) -> list[str]:
        """Return the names of the steps, with a run, of one of the role's attempts."""

    def read(self, text: str, structured: Any = None) -> WorkAnswer:
        """Return its answer; a text without one is its summary.

        Raises:
            Unparseable: There are several answers, or one is not of the type.
        """
        return read_work(self.name, text, structured)
