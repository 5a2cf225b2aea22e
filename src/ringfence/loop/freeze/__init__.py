"""Which files an implementor must leave alone, and whether it did."""

from ringfence.loop.freeze.model import (
    EXECUTABLE,
    GITLINK,
    REGULAR,
    RULES,
    RUNNERS,
    SYMLINK,
    Changed,
    Frozen,
    FrozenFile,
    Guard,
    Item,
    Read,
    Rule,
    Runner,
    Tampering,
)
from ringfence.loop.freeze.places import is_leftover, is_plain_path, is_test_path
from ringfence.loop.freeze.scripts import with_scripts
from ringfence.loop.freeze.tampering import broken, freeze, tampering
from ringfence.loop.freeze.writing import Dropped, only_tests

__all__ = [
    "EXECUTABLE",
    "GITLINK",
    "REGULAR",
    "RULES",
    "RUNNERS",
    "SYMLINK",
    "Changed",
    "Dropped",
    "Frozen",
    "FrozenFile",
    "Guard",
    "Item",
    "Read",
    "Rule",
    "Runner",
    "Tampering",
    "broken",
    "freeze",
    "is_leftover",
    "is_plain_path",
    "is_test_path",
    "only_tests",
    "tampering",
    "with_scripts",
]
