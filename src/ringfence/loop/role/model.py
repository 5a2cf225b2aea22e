"""Roles, and what they are told."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ringfence.frozen import frozen

Role = Literal["planner", "test_writer", "implementor", "reviewer", "judge"]


@frozen
class Briefing:
    """What is known when a role's turn begins; each role is shown what it needs of it."""

    goal: str = ""
    """What the user wants, where there are no stories yet."""
    plan_title: str = ""
    plan_description: str = ""
    context: tuple[str, ...] = ()
    """What the plan says about all of its stories."""
    story_id: str = ""
    story_title: str = ""
    story: str = ""
    """Its description."""
    criteria: tuple[str, ...] = ()
    """Of the story. A verdict names them by their number, counted from 1."""
    details: str = ""
    """What else the stories' file says of it."""
    feedback: tuple[str, ...] = ()
    """Why earlier attempts were rejected, the oldest first."""
    commands: tuple[str, ...] = ()
    """By which the work will be checked."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """The frozen tests of this story: paths and texts."""
    protected: tuple[str, ...] = ()
    """Files that are put back to what they were, whatever an attempt does to them, each with the reason."""
    notes: tuple[str, ...] = ()
    """What was noticed about an attempt without judging it, for those who judge it."""
    diff: str = ""
    """Of this story's attempt alone."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """What each check said: names and texts."""
    results: Mapping[str, str] = field(default_factory=dict)
    """How each test ended, by its id: what a verdict may name as evidence."""
    review: str = ""
    """The reviewer's answers."""
    files: tuple[str, ...] = ()
    """Of the project."""
    guides: Mapping[str, str] = field(default_factory=dict)
    """What the project tells agents: `CLAUDE.md`, `AGENTS.md`, their texts."""


@frozen
class Cut:
    """A section of a prompt that is not shown whole."""

    section: str
    shown_chars: int
    """0: it is left out."""
    all_chars: int

    def __str__(self) -> str:
        if not self.shown_chars:
            return f"{self.section}: left out ({self.all_chars} characters)"
        return f"{self.section}: {self.shown_chars} of {self.all_chars} characters"


@frozen
class Prompt:
    """What a role is asked."""

    text: str
    version: str
    """Of the template: 12 hexadecimal digits of its SHA-256."""
    cuts: tuple[Cut, ...] = ()
