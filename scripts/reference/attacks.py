"""docs/reference/attacks.md."""

from itertools import groupby

from reference.markdown import code, table
from ringfence.testing.attack import ATTACKS

_HEAD = """\
# Escape suite

`ringfence doctor --attack` carries these attacks out against a real sandbox on your machine and prints how
each went; a promise that cannot be checked counts as not held. The tests run the same attacks, as root and
as an ordinary user. The threat model: [security](../explanation/security.md).
"""


def page() -> str:
    """The page."""
    parts = [_HEAD]
    for group, attacks in groupby(ATTACKS, key=lambda one: one.group):
        parts += [f"## {group[:1].upper()}{group[1:]}\n"]
        parts.append(table(("attack", "promise"), [(code(one.name), one.promise) for one in attacks]))
    return "\n".join(parts)
