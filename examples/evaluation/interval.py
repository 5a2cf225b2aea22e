"""Overlaps of intervals, as a booking system needs them. One of the two functions is wrong."""


def overlap(first, second):
    """Whether two half-open intervals have a moment in common."""
    return first[0] <= second[1] and second[0] <= first[1]


def length(interval):
    """How long an interval is."""
    return interval[1] - interval[0]
