"""The files of a session's sub-agents: `<session>/subagents/agent-<id>.jsonl` beside `<session>.jsonl`."""

import os
import re
from contextlib import ExitStack
from pathlib import Path

from ringfence.frozen import frozen

MAX_FILES = 512
"""More sub-agents of one session are not read; that is told."""

_NAME = re.compile(r"agent-([A-Za-z0-9_-]{1,100})\.jsonl")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class SubagentFile:
    """The file of one sub-agent."""

    agent: str
    path: Path


def subagent_files(session: Path) -> list[SubagentFile]:
    """The files of a session's sub-agents, the oldest first; at most one more than `MAX_FILES`.

    There are none where the directory is a link or cannot be read.
    """
    directory = session.parent / session.stem / "subagents"
    with ExitStack() as stack:
        try:
            fd = os.open(session.parent / session.stem, _DIRECTORY)
            stack.callback(os.close, fd)
            fd = os.open("subagents", _DIRECTORY, dir_fd=fd)
            stack.callback(os.close, fd)
            with os.scandir(fd) as entries:
                names = sorted(
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                    for entry in entries
                    if _NAME.fullmatch(entry.name)
                )
        except (OSError, ValueError):
            return []
    return [
        SubagentFile(name[len("agent-") : -len(".jsonl")], directory / name)
        for _, name in names[: MAX_FILES + 1]
    ]
