"""The one process that owns a fleet's state: it fires schedules, admits jobs, and answers on a socket."""
