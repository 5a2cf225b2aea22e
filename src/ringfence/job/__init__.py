"""Jobs: one run of one agent, with its lifecycle, limits, verification and store."""
