"""Bytes that many may have at once, all of them together: what each may have says nothing about a crowd."""

from dataclasses import dataclass


@dataclass
class Room:
    """How many bytes are still to be had."""

    left: int

    def take(self, count: int) -> bool:
        """Have `count` bytes; False, and nothing is taken, if there are not as many."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def give_back(self, count: int) -> None:
        """Need `count` bytes no more."""
        self.left += count
