"""Fails if something was left behind (open ends, debugging, conflicts, invisible characters) or is misnamed."""

import re
import subprocess
import sys
from pathlib import Path

from identifiers import misnamed

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ringfence"
_SKIPPED = {"uv.lock", "LICENSE", "scripts/check_words.py"}
_FORBIDDEN = (
    (r"\b(TODO|FIXME|XXX|HACK|WIP)\b", "an open end: do it, or say in the docs that it is not done"),
    (r"^(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|)( |$)", "a conflict of a merge"),
    (r"\b(breakpoint|set_trace)\(", "debugging"),
    (r"\b(raise|return) NotImplementedError\b", "a stub: refuse with an error of ringfence.errors instead"),
    (r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", "a character that cannot be seen"),
    (r"[ \t]+$", "white space at the end of a line"),
)


def main() -> int:
    """Print every place; return 1 if there is one."""
    places = 0
    for file in _files():
        try:
            text = (ROOT / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern, why in _FORBIDDEN:
                if re.search(pattern, line):
                    print(f"{file}:{number}: {why}: {line.strip()[:100]!r}", file=sys.stderr)
                    places += 1
    names = misnamed(PACKAGE)
    for name in names:
        print(f"{PACKAGE.relative_to(ROOT)}/{name}", file=sys.stderr)
    return int(places + len(names) > 0)


def _files() -> list[str]:
    """What git knows or would add; without git, all that is not hidden."""
    try:
        command = [
            "git",
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
            "\0"
        )
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("[!.]*")]
    return sorted(
        name
        for name in listed
        if name and name not in _SKIPPED and (ROOT / name).is_file() and not name.startswith(".venv/")
    )


if __name__ == "__main__":
    sys.exit(main())
