"""docs/reference/proofs.md."""

import tomllib
from pathlib import Path
from typing import Any

from reference.markdown import code, table

SOURCE = Path(__file__).with_suffix(".toml")
"""Guards with the attacks and tests that prove them."""
_HEAD = """\
# What proves each guard

For each guard that the documentation describes, this page names the attacks and tests that fail without it. A name
without a file is an attack of the [escape suite](attacks.md), which `ringfence doctor --attack` carries out on your
machine; the others are tests of this project. What the guards are for, and their limits:
[security](../explanation/security.md).
"""


def page() -> str:
    """The page."""
    parts = [_HEAD]
    for section in sections():
        parts.append(f"## {section['title']}\n")
        if "intro" in section:
            parts.append(f"{section['intro']}\n")
        rows = [(one["guard"], one["how"], _shown(one["proof"])) for one in section["guard"]]
        parts.append(table(("guard, or attack", "how it holds", "proof"), rows))
    return "\n".join(parts)


def sections() -> list[dict[str, Any]]:
    """The sections of the page: a title, an introduction or none, and guards."""
    found: list[dict[str, Any]] = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["section"]
    return found


def _shown(proofs: list[str]) -> str:
    """The proofs of a guard; the file of a test is named once for tests in a row."""
    parts, file = [], ""
    for proof in proofs:
        this, _, test = proof.partition("::")
        parts.append(code(f"::{test}" if test and this == file else proof))
        file = this
    return ", ".join(parts)
