"""Time: schedules, what of them is due, and the clock that says so."""

from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.due import CatchUp, Due, due
from ringfence.fleet.schedule.firing import Clock, ClockJumped, Fire, Report, SystemTime, Timer, TimeSource
from ringfence.fleet.schedule.interval import IntervalSchedule
from ringfence.fleet.schedule.slot import Schedule, slot_id

__all__ = [
    "CatchUp",
    "Clock",
    "ClockJumped",
    "CronSchedule",
    "Due",
    "Fire",
    "IntervalSchedule",
    "Report",
    "Schedule",
    "SystemTime",
    "TimeSource",
    "Timer",
    "due",
    "slot_id",
]
