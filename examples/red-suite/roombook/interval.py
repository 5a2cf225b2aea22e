"""Stretches of a day, in whole minutes: the start belongs to them, the end does not."""

import re

_FORM = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY = 24 * 60


class Interval:
    """From one minute of the day up to, and without, another."""

    __slots__ = ("start", "end")

    def __init__(self, start, end):
        if not 0 <= start < end <= _DAY:
            raise ValueError(f"no stretch of a day: minute {start} to minute {end}")
        self.start = start
        self.end = end

    @classmethod
    def parse(cls, text):
        """The interval that is written like `9:00-10:30`."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not written like '9:00-10:30'")
        hours, minutes, end_hours, end_minutes = (int(part) for part in found.groups())
        if minutes > 59 or end_minutes > 59:
            raise ValueError(f"{text!r} has more than 59 minutes in an hour")
        return cls(hours * 60 + minutes, end_hours * 60 + end_minutes)

    @property
    def minutes(self):
        """How long it is."""
        return self.end - self.start

    def overlaps(self, other):
        """Whether some minute belongs to both."""
        return self.start <= other.end and other.start <= self.end

    def touches(self, other):
        """Whether the two together are one stretch: they overlap, or one begins where the other ends."""
        return self.start <= other.end and other.start <= self.end

    def __eq__(self, other):
        if not isinstance(other, Interval):
            return NotImplemented
        return (self.start, self.end) == (other.start, other.end)

    def __hash__(self):
        return hash((self.start, self.end))

    def __str__(self):
        return f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def __repr__(self):
        return f"Interval({str(self)!r})"


def merge(intervals):
    """The same minutes in as few intervals as possible, in the order of the day."""
    merged = []
    for interval in sorted(intervals, key=lambda each: each.start):
        if merged and merged[-1].touches(interval):
            merged[-1] = Interval(merged[-1].start, interval.end)
        else:
            merged.append(interval)
    return merged
