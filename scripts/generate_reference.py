"""Writes the reference pages that are made from the code; with `--check`, only says which are out of date."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from reference import (
    attacks,
    commands,
    configuration,
    endings,
    environment,
    events,
    exit_codes,
    fleet,
    loop,
    policy,
    proofs,
    runtimes,
)

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "attacks.md": attacks.page,
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "fleet.md": fleet.page,
    "endings.md": endings.page,
    "environment.md": environment.page,
    "events.md": events.page,
    "exit-codes.md": exit_codes.page,
    "loop.md": loop.page,
    "policy.md": policy.page,
    "proofs.md": proofs.page,
    "runtimes.md": runtimes.page,
}
TOPICS: dict[Path, Callable[[], str]] = {ROOT / "src/ringfence/cli/topics/exit-codes.md": exit_codes.topic}
"""Pages of `ringfence help`, which the package carries."""
_NOTE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n"


def main() -> int:
    """Write or compare all pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    only_check = parser.parse_args().check
    stale = []
    texts = {DIRECTORY / name: f"{_NOTE}{page().rstrip()}\n" for name, page in PAGES.items()}
    texts |= {file: f"{topic().rstrip()}\n" for file, topic in TOPICS.items()}
    for file, text in texts.items():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(file.name)
        if not only_check:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file}")
    if only_check and stale:
        print(f"out of date: {', '.join(stale)}; write them anew with `make docs`", file=sys.stderr)
    return int(only_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
