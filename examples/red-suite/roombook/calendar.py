"""The bookings of one room on one day."""

from roombook.interval import Interval, merge


class Taken(Exception):
    """The room is taken at that time."""


class Booking:
    """One use of the room."""

    __slots__ = ("interval", "title")

    def __init__(self, interval, title):
        self.interval = interval
        self.title = title

    def __repr__(self):
        return f"Booking({str(self.interval)!r}, {self.title!r})"


class Calendar:
    """All bookings of a room; no two of them overlap, unless they are held tentatively."""

    def __init__(self):
        self._firm = []
        self._tentative = []

    def book(self, time, title):
        """Book the room.

        Raises:
            Taken: Another firm booking overlaps.
        """
        wanted = Interval.parse(time)
        for booking in self._firm:
            if booking.interval.overlaps(wanted):
                raise Taken(f"{wanted} is taken: {booking.interval} {booking.title}")
        booking = Booking(wanted, title)
        self._firm.append(booking)
        return booking

    def hold(self, time, title):
        """Hold the room tentatively; holds may overlap each other and firm bookings."""
        booking = Booking(Interval.parse(time), title)
        self._tentative.append(booking)
        return booking

    def cancel(self, booking):
        """Give a booking or a hold up."""
        for bookings in (self._firm, self._tentative):
            if booking in bookings:
                bookings.remove(booking)
                return
        raise ValueError(f"{booking!r} is not in this calendar")

    def taken(self):
        """The stretches of the day in which somebody has or holds the room."""
        return merge(booking.interval for booking in (*self._firm, *self._tentative))

    def free(self, within, at_least=1):
        """The free stretches within a time, those of at least so many minutes."""
        frame = Interval.parse(within)
        gaps = []
        begin = frame.start
        for interval in self.taken():
            if interval.start > begin:
                gaps.append((begin, min(interval.start, frame.end)))
            begin = max(begin, interval.end)
            if begin >= frame.end:
                break
        if begin < frame.end:
            gaps.append((begin, frame.end))
        return [Interval(start, end) for start, end in gaps if end - start >= at_least]

    def use(self, within):
        """The part of a time in which the room is taken, from 0 to 1."""
        free = sum(interval.minutes for interval in self.free(within))
        return 1 - free / Interval.parse(within).minutes
