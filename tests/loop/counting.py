"""`ringfence` in a process that logs what it costs to a file: `python counting.py FILE WORDS...`.

A line is a statement of SQL, after the name of its database, or `git` and the words of a git process that it started.
"""

import os
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ringfence.cli import main
from ringfence.sandbox.workspace.git.command import git_program


class _Counted(sqlite3.Connection):
    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        name = Path(str(words[0]).partition("?")[0]).name
        self.set_trace_callback(lambda statement: _log.write(f"{name} {' '.join(statement.split())[:100]}\n"))


def _log_git(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        words = [os.fsdecode(word) for word in arguments[1]]
        # A shell that sets limits becomes git: `sh -c SCRIPT sh LIMITS... /usr/bin/git WORDS...`.
        if Path(words[0]).name in ("git", "sh") and _GIT in words:
            _log.write(f"git {' '.join(' '.join(words[words.index(_GIT) + 1 :]).split())[:200]}\n")


if __name__ == "__main__":
    _log = Path(sys.argv[1]).open("a", buffering=1)  # noqa: SIM115 -- open until the process ends
    sqlite3.connect = partial(sqlite3.connect, factory=_Counted)  # type: ignore[assignment]
    _GIT = str(git_program())
    sys.addaudithook(_log_git)
    sys.argv = ["ringfence", *sys.argv[2:]]
    main()
