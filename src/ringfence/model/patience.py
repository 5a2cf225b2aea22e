"""How long a model is waited for, and how often it is asked again."""

from collections.abc import Callable

from ringfence.frozen import frozen


@frozen
class Patience:
    """Deadlines and retries of one `reply`. All times in seconds."""

    attempts: int = 8
    """Requests at most, the first included."""
    total_s: float = 900.0
    """No new attempt is begun later than this after the first; an attempt under way may take `reply_s`."""
    connect_s: float = 10.0
    first_byte_s: float = 300.0
    """From the request to the first event; a local server may first read a long prompt."""
    idle_s: float = 90.0
    """Between two events of a stream; the API sends a ping more often than that."""
    reply_s: float = 1800.0
    """One attempt in all."""
    backoff_s: float = 0.5
    """The first wait where the server names none; doubled each time."""
    backoff_limit_s: float = 30.0

    def wait_s(self, failed_attempts: int, *, asked_s: float | None, jitter: Callable[[], float]) -> float:
        """How long to wait after so many failed attempts.

        Args:
            failed_attempts: At least 1.
            asked_s: What the server's `retry-after` says; kept to exactly.
            jitter: Gives a number in [0, 1): clients that failed together must not come back together.
        """
        if asked_s is not None:
            return asked_s
        full = min(self.backoff_s * 2.0 ** min(failed_attempts - 1, 32), self.backoff_limit_s)
        return full * (0.5 + 0.5 * jitter())
