"""HTTP in the gate: one client for outgoing requests, one server for requests from inside, one set of rules."""
