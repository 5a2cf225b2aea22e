"""Sends results of tests to the host, each as soon as it exists: what was sent cannot be taken back.

Runs in the process that runs the tests, beside untrusted code, on Python 3.8 or later.
"""

import json
import os
import socket

_MAX_DETAIL_CHARS = 4000
_MAX_NAME_CHARS = 900


def settings():
    """Return the settings of this check, which the host wrote beside this file."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings.json")) as file:
        return json.load(file)


class Channel:
    """The connection to the host. Only the process that opened it sends; messages of its forks are dropped.

    Args:
        path: The socket's path.
    """

    def __init__(self, path):
        self._owner = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def send(self, kind, **fields):
        """Send one message, as one line of JSON."""
        if os.getpid() == self._owner:
            self._socket.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")


def clean(text, most=_MAX_DETAIL_CHARS):
    """Return a value as text that JSON can hold (without lone surrogates), cut in its middle to `most` characters."""
    text = str(text).encode("utf-8", "backslashreplace").decode()
    if len(text) > most:
        head, tail = most // 4, most - most // 4
        text = "%s\n[... %d characters cut ...]\n%s" % (text[:head], len(text) - most, text[-tail:])
    return text


def shown(path, workspace):
    """Return a path relative to the workspace if it lies there, else absolute; None for an empty path."""
    if not path:
        return None
    path, workspace = os.path.realpath(path), os.path.realpath(workspace)
    inside = path.startswith(workspace + os.sep)
    return clean(os.path.relpath(path, workspace) if inside else path, _MAX_NAME_CHARS)


def cause(error, workspace):
    """Return type, message, missing name and file of an exception."""
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
    except Exception:  # converting a hostile exception to text may raise
        return {"type": clean(type(error).__name__, 200), "message": "", "name": None, "file": None}


def _innermost(error):
    trace, where = error.__traceback__, None
    while trace is not None:
        where, trace = trace.tb_frame.f_code.co_filename, trace.tb_next
    return where
