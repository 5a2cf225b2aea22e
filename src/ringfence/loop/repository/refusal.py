"""Errors for repositories, changes and deliveries that are refused."""

from collections.abc import Mapping

from ringfence.errors import ExitCode, RingfenceError, UsageError

_MAX_LISTED = 10


class RepositoryRefused(UsageError):
    """A loop cannot start from the user's directory."""


class RepositoryRemoved(UsageError):
    """The repository of a loop was removed, as `ringfence loop rm` does."""


class WorkRefused(RingfenceError):
    """An agent's changes contain something that must not be committed; nothing was committed.

    Args:
        reasons: What is wrong with each path; paths are escaped for a terminal.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        listed = [f"{path!r}: {why}" for path, why in list(self.reasons.items())[:_MAX_LISTED]]
        more = f" and {len(self.reasons) - _MAX_LISTED} more" if len(self.reasons) > _MAX_LISTED else ""
        super().__init__(f"the changes cannot be committed: {'; '.join(listed)}{more}")


class NothingChanged(RingfenceError):
    """There are no changes to commit."""


class DeliveryRefused(RingfenceError):
    """The loop's work cannot be delivered to the user's repository in its current state; it was not changed."""

    exit_code = ExitCode.REFUSED


def list_paths(paths: list[str] | tuple[str, ...]) -> str:
    """Return the first paths for a message, and how many more there are."""
    listed = ", ".join(map(repr, paths[:_MAX_LISTED]))
    return listed + (f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else "")
