"""The fleet's HTTP API: a module of routes for each noun, and the access control before them."""
