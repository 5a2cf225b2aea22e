"""What a schedule is: an endless row of slots, each with an identity that survives restarts."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""What intervals are counted from, so that a restart changes nothing."""


class Schedule(ABC):
    """When something is to happen. A slot is one such moment; it depends on the schedule alone, not on who asks when."""

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot after a moment, in UTC; None if there is none within fifty years.

        Args:
            moment: With a time zone. A slot at the very moment is not after it.
        """

    @abstractmethod
    def describe(self) -> str:
        """The schedule as its owner wrote it, time zone included."""

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """Slots after `start` and not after `end`, the oldest first, at most `limit`."""
        slots: list[datetime] = []
        slot = self.next_after(start)
        while slot is not None and slot <= end and len(slots) < limit:
            slots.append(slot)
            slot = self.next_after(slot)
        return slots

    def count(self, start: datetime, end: datetime, limit: int) -> int:
        """How many slots lie after `start` and not after `end`; `limit` means so many or more."""
        return len(self.between(start, end, limit))


def slot_id(slot: datetime) -> str:
    """A slot's identity, `2026-01-31T09:30:00Z`: the same wherever and whenever it is worked out."""
    return slot.astimezone(UTC).isoformat().replace("+00:00", "Z")
