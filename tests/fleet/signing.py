"""Signs webhook requests, as senders do."""

import hashlib
import hmac
from datetime import datetime


def sign(secret: bytes, body: bytes, *, at: datetime | None = None) -> str:
    """Return a signature of a body in GitHub's style, or with a time in Stripe's."""
    if at is None:
        return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    seconds = str(int(at.timestamp()))
    digest = hmac.new(secret, seconds.encode("ascii") + b"." + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"
