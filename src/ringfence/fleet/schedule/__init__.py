"""Schedules, their due times, and the clock that calls back when they come."""
