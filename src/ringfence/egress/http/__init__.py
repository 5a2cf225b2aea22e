"""HTTP in the gate: one client for what leaves, one server for what comes from inside, one set of rules."""
