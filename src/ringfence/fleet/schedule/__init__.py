"""Schedules, their due times, and the clock that starts what is due."""
