"""Sources of work, whose items become jobs."""

from ringfence.fleet.trigger.source.base import (
    Claim,
    Fetched,
    Outcome,
    Unusable,
    WorkItem,
    WorkSource,
)

__all__ = ["Claim", "Fetched", "Outcome", "Unusable", "WorkItem", "WorkSource"]
