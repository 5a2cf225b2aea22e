"""Sends the host what tests come to, at once and for good: what went over the socket cannot be taken back.

Runs inside, beside code that is not to be trusted, on whatever Python is there (3.8 and later).
"""

import json
import os
import socket

_MAX_DETAIL_CHARS = 4000
_MAX_NAME_CHARS = 900


def settings():
    """What the host wrote beside this file."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings.json")) as file:
        return json.load(file)


class Channel:
    """The way to the host. A fork's messages are dropped: only the process that opened it speaks."""

    def __init__(self, path):
        self._owner = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def send(self, kind, **fields):
        """Send one message."""
        if os.getpid() == self._owner:
            self._socket.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")


def clean(text, most=_MAX_DETAIL_CHARS):
    """A text that any JSON can carry: no lone surrogates, cut in its middle."""
    text = str(text).encode("utf-8", "backslashreplace").decode()
    if len(text) > most:
        head, tail = most // 4, most - most // 4
        text = "%s\n[... %d characters cut ...]\n%s" % (text[:head], len(text) - most, text[-tail:])
    return text


def shown(path, workspace):
    """A path as the host names it: relative to the workspace where it lies there."""
    if not path:
        return None
    path, workspace = os.path.realpath(path), os.path.realpath(workspace)
    inside = path.startswith(workspace + os.sep)
    return clean(os.path.relpath(path, workspace) if inside else path, _MAX_NAME_CHARS)


def cause(error, workspace):
    """Type, message and place of an exception."""
    try:
        where, name = _innermost(error), getattr(error, "name", None)
        if isinstance(error, SyntaxError):
            where = error.filename
        return {
            "type": clean(type(error).__name__, 200),
            "message": clean(error, 500),
            "name": clean(name, 200) if isinstance(name, str) else None,
            "file": shown(where, workspace),
        }
    except Exception:  # an exception of hostile code may raise on being shown
        return {"type": clean(type(error).__name__, 200), "message": "", "name": None, "file": None}


def _innermost(error):
    trace, where = error.__traceback__, None
    while trace is not None:
        where, trace = trace.tb_frame.f_code.co_filename, trace.tb_next
    return where
