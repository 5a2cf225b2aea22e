"""Which times of a meeting room are taken, and which are free."""

from roombook.calendar import Booking, Calendar, Taken
from roombook.interval import Interval

__all__ = ["Booking", "Calendar", "Interval", "Taken"]
