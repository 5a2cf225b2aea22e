"""Sandboxes that outlive their creator: a supervisor process holds each one and serves it on a socket.

Clients speak the guest's own frames over the socket, so that an attached sandbox is a `Sandbox` like any other: the
supervisor gives channels new numbers and records the commands.
"""
