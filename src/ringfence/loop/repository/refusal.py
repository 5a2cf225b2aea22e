"""What a loop's repository refuses, by what the caller should do next."""

from collections.abc import Mapping

from ringfence.errors import ExitCode, RingfenceError, UsageError

_SHOWN = 10


class RepositoryRefused(UsageError):
    """The user's directory is no repository that a loop can start from."""


class RepositoryRemoved(UsageError):
    """The repository of a loop was removed, as `ringfence loop rm` does."""


class WorkRefused(RingfenceError):
    """An agent's changes hold what no commit may hold; nothing was committed.

    Args:
        reasons: Each path, escaped for a terminal, and what is wrong with it.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        shown = [f"{path!r}: {why}" for path, why in list(self.reasons.items())[:_SHOWN]]
        more = f" and {len(self.reasons) - _SHOWN} more" if len(self.reasons) > _SHOWN else ""
        super().__init__(f"the changes cannot be committed: {'; '.join(shown)}{more}")


class NothingChanged(RingfenceError):
    """There is nothing to commit."""


class DeliveryRefused(RingfenceError):
    """The user's repository cannot take the loop's work as it is; nothing of it was changed."""

    exit_code = ExitCode.REFUSED


def named(paths: list[str] | tuple[str, ...]) -> str:
    """Some paths by name, and how many more there are."""
    shown = ", ".join(map(repr, paths[:_SHOWN]))
    return shown + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
