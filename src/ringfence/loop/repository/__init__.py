"""The git side of a loop: its own repository, a clone for each story at work, and the way back to the user."""

from ringfence.loop.repository.candidate import Change, changes_between, check_links, check_size
from ringfence.loop.repository.looking import Look, look
from ringfence.loop.repository.merging import Conflict, Merged
from ringfence.loop.repository.message import Trailers
from ringfence.loop.repository.refusal import (
    DeliveryRefused,
    NothingChanged,
    RepositoryRefused,
    WorkRefused,
)
from ringfence.loop.repository.repository import LoopRepository
from ringfence.loop.repository.slot import Slot
from ringfence.loop.repository.tree import Tree

__all__ = [
    "Change",
    "Conflict",
    "DeliveryRefused",
    "Look",
    "LoopRepository",
    "Merged",
    "NothingChanged",
    "RepositoryRefused",
    "Slot",
    "Trailers",
    "Tree",
    "WorkRefused",
    "changes_between",
    "check_links",
    "check_size",
    "look",
]
