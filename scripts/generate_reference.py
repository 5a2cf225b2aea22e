"""Writes the reference pages that are made from the code; with `--check`, only says which are out of date."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from reference import (
    api,
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

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "api.md": api.page,
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
_NOTE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n"


def main() -> int:
    """Write or compare all pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    only_check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        text = f"{_NOTE}{page().rstrip()}\n"
        file = DIRECTORY / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not only_check:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file}")
    if only_check and stale:
        print(f"out of date: {', '.join(stale)}; write them anew with `make docs`", file=sys.stderr)
    return int(only_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
