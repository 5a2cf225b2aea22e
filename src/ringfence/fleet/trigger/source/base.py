"""The contract of work sources: places where others leave work, and a fleet takes it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

BODY_LIMIT_BYTES: Final = 256 * 1024
"""Of an item's text."""
COMMENT_LIMIT_BYTES: Final = 60_000
"""Longer comments are cut, and say so."""


@dataclass(frozen=True)
class WorkItem:
    """A piece of work. Its words are from outside: data, not instructions of the fleet's owner."""

    id: str
    """What the source knows it by: a file's name, an issue's number."""
    title: str
    body: str
    created_at: datetime
    url: str = ""
    labels: tuple[str, ...] = ()

    def as_payload(self) -> dict[str, object]:
        """For a prompt's template, as `work`."""
        return {
            "id": self.id,
            "title": self.title,
            "body": self.body,
            "url": self.url,
            "labels": list(self.labels),
        }


@dataclass(frozen=True)
class Unusable:
    """Something that lies where work should, and is none."""

    id: str
    reason: str


@dataclass(frozen=True)
class Fetched:
    """What there is to do, the oldest first."""

    items: tuple[WorkItem, ...]
    unusable: tuple[Unusable, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A piece of work that is ours, as it was when it became ours. Later calls need no more, also after a crash."""

    item: WorkItem
    token: str
    """What tells this claim from all others."""
    handle: str = ""
    """The source's own note."""


class Outcome(StrEnum):
    """How work ended."""

    DONE = "done"
    FAILED = "failed"


class WorkSource(ABC):
    """Where work is left.

    An item has at most one claim at a time, whoever asks from wherever. Every call may be repeated with the same
    arguments, and then changes nothing more; each is bounded in time and in what it reads.

    Raises:
        InfrastructureFault: By every method: the source cannot be reached, or asks for patience.
        AuthenticationFailed: By every method: the source does not accept the credential.
        UsageError: By every method: there is no such place, or it does not allow what is asked.
    """

    @abstractmethod
    async def fetch(self, limit: int) -> Fetched:
        """What can be claimed, the oldest first, at most so many items."""

    @abstractmethod
    async def claim(self, id: str, token: str) -> Claim | None:
        """Take an item; None if another has it, or it is gone.

        Args:
            id: Of the item.
            token: Unique to this claim: 8 to 64 letters and digits. The same one again gives the same claim.
        """

    @abstractmethod
    async def complete(self, claim: Claim, outcome: Outcome, text: str) -> None:
        """End the claim for good: nobody will claim the item again, unless somebody puts it back.

        Args:
            claim: The claim.
            outcome: How it ended.
            text: What is to be said about it, cut at 60,000 bytes.
        """

    async def aclose(self) -> None:
        """Let go of connections."""
        return


def cut(text: str, limit_bytes: int = COMMENT_LIMIT_BYTES) -> str:
    """The text, or its beginning and how much is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    kept = raw[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n\n(cut: {len(raw) - limit_bytes} bytes more)"
