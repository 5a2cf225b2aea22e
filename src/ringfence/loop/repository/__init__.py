"""Keeps a loop's commits in a separate git repository, with a worktree per running story, and delivers them."""

from ringfence.loop.repository.branch import Candidate, Conflict, Merged
from ringfence.loop.repository.change import Change, changes_between, check_links, check_size
from ringfence.loop.repository.commit import Trailers, Tree
from ringfence.loop.repository.inspection import Inspection, inspect_repository
from ringfence.loop.repository.refusal import (
    DeliveryRefused,
    NothingChanged,
    RepositoryRefused,
    RepositoryRemoved,
    WorkRefused,
)
from ringfence.loop.repository.repository import LoopRepository
from ringfence.loop.repository.source import find_source
from ringfence.loop.repository.worktree import Worktree

__all__ = [
    "Candidate",
    "Change",
    "Conflict",
    "DeliveryRefused",
    "Inspection",
    "LoopRepository",
    "Merged",
    "NothingChanged",
    "RepositoryRefused",
    "RepositoryRemoved",
    "Trailers",
    "Tree",
    "WorkRefused",
    "Worktree",
    "changes_between",
    "check_links",
    "check_size",
    "find_source",
    "inspect_repository",
]
