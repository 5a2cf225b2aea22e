"""Which files an implementor must leave alone, and whether it did."""

from ringfence.check.freeze.model import Item
from ringfence.check.freeze.places import is_leftover
from ringfence.check.freeze.scripts import with_scripts
from ringfence.check.freeze.tampering import freeze, tampering
from ringfence.check.freeze.writing import only_tests

__all__ = ["Item", "freeze", "is_leftover", "only_tests", "tampering", "with_scripts"]
