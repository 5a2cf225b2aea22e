"""Work that others leave somewhere, for a fleet to take."""

from ringfence.fleet.trigger.source.base import (
    Claim,
    Fetched,
    Outcome,
    Unusable,
    WorkItem,
    WorkSource,
)

__all__ = ["Claim", "Fetched", "Outcome", "Unusable", "WorkItem", "WorkSource"]
