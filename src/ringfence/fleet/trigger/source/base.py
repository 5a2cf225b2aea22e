"""The contract of work sources, whose items become jobs of a fleet."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

BODY_LIMIT_BYTES: Final = 256 * 1024
"""The size limit of an item's text."""
COMMENT_LIMIT_BYTES: Final = 60_000
"""The size limit of a comment; a longer one is cut, and ends with a note about that."""


@dataclass(frozen=True)
class WorkItem:
    """A piece of work. Its texts are untrusted data, not instructions of the fleet's owner."""

    id: str
    """The id in the source: the name of a file, or the number of an issue."""
    title: str
    body: str
    created_at: datetime
    url: str = ""
    labels: tuple[str, ...] = ()

    def as_payload(self) -> dict[str, object]:
        """Return the item as `work` of a prompt template."""
        return {
            "id": self.id,
            "title": self.title,
            "body": self.body,
            "url": self.url,
            "labels": list(self.labels),
        }


@dataclass(frozen=True)
class Unusable:
    """An item that cannot become a job."""

    id: str
    reason: str


@dataclass(frozen=True)
class Fetched:
    """The items of a source, the oldest first."""

    items: tuple[WorkItem, ...]
    unusable: tuple[Unusable, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A claimed item. It is all that later calls need, also after a crash."""

    item: WorkItem
    token: str
    """The unique id of the claim."""
    handle: str = ""
    """A note of the source."""


class Outcome(StrEnum):
    """How work ended."""

    DONE = "done"
    FAILED = "failed"


class WorkSource(ABC):
    """A source of work.

    An item has at most one claim at a time, even if several machines claim it. Every call is idempotent, and bounded in
    time and in what it reads.

    Raises:
        InfrastructureFault: By every method: the source cannot be reached, or limits the rate.
        AuthenticationFailed: By every method: the source does not accept the credential.
        UsageError: By every method: the source does not exist, or refuses the request.
    """

    @abstractmethod
    async def fetch(self, limit: int) -> Fetched:
        """Return the oldest items that can be claimed, at most `limit`."""

    @abstractmethod
    async def claim(self, id: str, token: str) -> Claim | None:
        """Claim an item; None if it is claimed by another, or gone.

        Args:
            id: The id of the item.
            token: The unique id of the claim, 8 to 64 letters and digits. The same token returns the same claim.
        """

    @abstractmethod
    async def complete(self, claim: Claim, outcome: Outcome, text: str) -> None:
        """End a claim. The item cannot be claimed again, unless a person puts it back.

        Args:
            claim: The claim.
            outcome: How it ended.
            text: A comment, cut at 60,000 bytes.
        """

    async def aclose(self) -> None:
        """Close connections."""
        return


def cut(text: str, limit_bytes: int = COMMENT_LIMIT_BYTES) -> str:
    """Return a text, or its beginning with the number of bytes that are missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    kept = raw[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n\n(cut: {len(raw) - limit_bytes} bytes more)"
