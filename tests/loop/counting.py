"""`ringfence` in a process that logs each statement of SQL to a file: `python counting.py FILE WORDS...`."""

import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ringfence.cli import main


class _Counted(sqlite3.Connection):
    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        name = Path(str(words[0]).partition("?")[0]).name
        self.set_trace_callback(lambda statement: _log.write(f"{name} {' '.join(statement.split())[:100]}\n"))


if __name__ == "__main__":
    _log = Path(sys.argv[1]).open("a", buffering=1)  # noqa: SIM115 -- open until the process ends
    sqlite3.connect = partial(sqlite3.connect, factory=_Counted)  # type: ignore[assignment]
    sys.argv = ["ringfence", *sys.argv[2:]]
    main()
