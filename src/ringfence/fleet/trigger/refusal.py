"""Why a webhook's request is not taken."""

from ringfence.errors import RingfenceError


class WebhookRefused(RingfenceError):
    """A request to a webhook is refused.

    Args:
        status: The HTTP status to answer with: 400, 401, 408, 413 or 415.
        reason: What is wrong, in one line, for the sender. It holds nothing secret.
    """

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"webhook refused ({status}): {reason}")
