"""The contract of schedules: an endless sequence of due times, whose ids survive restarts."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The origin of intervals, so that a restart changes no due time."""


class Schedule(ABC):
    """A sequence of due times, which depends on nothing but the schedule."""

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due time after a moment, in UTC; None if there is none within fifty years.

        Args:
            moment: A moment with a time zone. It is excluded itself.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the schedule as it is configured, with its time zone."""

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """Return the first `limit` due times in (start, end]."""
        due_times: list[datetime] = []
        due_time = self.next_after(start)
        while due_time is not None and due_time <= end and len(due_times) < limit:
            due_times.append(due_time)
            due_time = self.next_after(due_time)
        return due_times

    def count(self, start: datetime, end: datetime, limit: int) -> int:
        """Return the number of due times in (start, end], at most `limit`."""
        return len(self.between(start, end, limit))


def due_time_id(due_time: datetime) -> str:
    """Return the id of a due time, such as `2026-01-31T09:30:00Z`."""
    return due_time.astimezone(UTC).isoformat().replace("+00:00", "Z")
