"""Which files an implementor must leave alone, and whether it did."""

from ringfence.loop.freeze.model import Item
from ringfence.loop.freeze.places import is_leftover
from ringfence.loop.freeze.scripts import with_scripts
from ringfence.loop.freeze.tampering import freeze, tampering
from ringfence.loop.freeze.writing import only_tests

__all__ = ["Item", "freeze", "is_leftover", "only_tests", "tampering", "with_scripts"]
