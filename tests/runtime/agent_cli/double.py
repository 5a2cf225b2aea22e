"""A client for tests: a real process that does what its prompt says, well or badly, and prints claude's stream-json.

Its prompt is a JSON list of steps, each a list of a name and arguments: see `STEPS`. Run as a program inside; imported
outside, where the steps are made.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

USAGE = {"input_tokens": 10_000, "output_tokens": 10_000}
"""What it claims to have used; nobody is to believe it."""


def line(value: object) -> None:
    """Print an object as a line."""
    raw(json.dumps(value) + "\n")


def raw(text: str) -> None:
    """Print a text as it is. Not by `sys.stdout`, which a signal's handler may not use while it is just in use."""
    rest = text.encode()
    while rest:
        rest = rest[os.write(1, rest) :]


def reply(message_id: str, text: str, *calls: Any) -> None:
    """A reply: a text, and calls as (id, tool, arguments)."""
    content = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": each[0], "name": each[1], "input": each[2]} for each in calls]
    message = {"id": message_id, "model": "fake", "content": content, "stop_reason": None, "usage": USAGE}
    line({"type": "assistant", "message": message, "session_id": "s-1"})


def returned(call_id: str, text: str) -> None:
    """The result of a call."""
    content = [{"type": "tool_result", "tool_use_id": call_id, "content": text}]
    line({"type": "user", "message": {"content": content}})


def result(text: str = "done", **more: object) -> None:
    """The last word."""
    line({"type": "result", "subtype": "success", "is_error": False, "result": text, "num_turns": 1, **more})


def stderr(text: str) -> None:
    """Print to stderr."""
    sys.stderr.write(text)
    sys.stderr.flush()


def flood(piece: str, times: int) -> None:
    """Print the same very often."""
    text = piece * max(1, 65536 // len(piece))
    for _ in range(times):
        sys.stdout.write(text)
    sys.stdout.flush()


def ignore(*names: str) -> None:
    """Take no notice of signals."""
    for name in names:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def sleep(seconds: float) -> None:
    """In short pieces: a signal just before a long one would be heeded at its end only."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.02)


def heed(name: str, text: str) -> None:
    """At a signal, say a last word and end with 0, as claude does."""

    def end(*_: object) -> None:
        result(text, subtype="error_during_execution", is_error=True)
        os._exit(0)

    signal.signal(getattr(signal, name), end)


def daemon(file: str) -> None:
    """Leave a process in a session of its own, which holds stdout and writes its number into a file."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            write(file, str(os.getpid()))
            time.sleep(3600)
        os._exit(0)
    os.wait()


def write(file: str, text: str) -> None:
    """Write a file."""
    Path(file).write_text(text)


def die(name: str) -> None:
    """End by a signal."""
    os.kill(os.getpid(), getattr(signal, name))


def eat(megabytes: int) -> None:
    """Take memory."""
    kept = [b"x" * 1024 * 1024 for _ in range(megabytes)]
    line({"type": "kept", "count": len(kept)})


def digest(text: str) -> None:
    """Say what it was sent."""
    line({"type": "digest", "sha256": hashlib.sha256(text.encode()).hexdigest()})


STEPS: dict[str, Any] = {
    each.__name__: each
    for each in (
        line,
        raw,
        reply,
        returned,
        result,
        stderr,
        flood,
        ignore,
        heed,
        daemon,
        write,
        die,
        eat,
        digest,
    )
}
STEPS["sleep"] = sleep
STEPS["exit"] = sys.exit


def main() -> None:
    """Do what stdin says."""
    for name, *arguments in json.loads(sys.stdin.read()):
        options = (
            arguments.pop() if arguments and isinstance(arguments[-1], dict) and name == "result" else {}
        )
        STEPS[name](*arguments, **options)


if __name__ == "__main__":
    main()
