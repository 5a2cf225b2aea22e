"""Sandboxes that outlive the process that made them: a supervisor process keeps each and serves it on a socket.

Clients speak the guest's own frames over the socket, so that an attached sandbox is a `Sandbox` like any other: the
supervisor gives channels new numbers and records what is run.
"""
