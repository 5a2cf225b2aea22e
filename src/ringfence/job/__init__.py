"""One run of one agent: lifecycle, limits, verification, store."""
