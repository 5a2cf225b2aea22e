"""Sandboxes that outlive whoever made them: a holder process keeps the stream and serves it on a socket.

Whoever attaches speaks the guest's own frames over the socket, so that a held sandbox is a `Sandbox` like any
other: the holder only gives channels new numbers and records what is run.
"""
