"""Time: schedules, what of them is due, and the clock that says so."""
