"""The one process that owns a crew's state: it fires schedules, admits jobs, and answers on a socket."""
