"""Events about secrets: names, sources and times, never values."""

from ringfence.events.event import Event


class SecretLeased(Event, frozen=True, kw_only=True, tag="secret.leased"):
    """A secret was lent to the run. Times are in UTC."""

    lease: str
    secret: str
    source: str
    expires_at: str | None


class SecretExpiring(Event, frozen=True, kw_only=True, tag="secret.expiring"):
    """A secret that the run has ends soon, and could not be renewed."""

    lease: str
    secret: str
    expires_at: str | None
    reason: str


class SecretRevoked(Event, frozen=True, kw_only=True, tag="secret.revoked"):
    """A secret was forgotten, and revoked where its source says how; `problem` is why that failed."""

    lease: str
    secret: str
    problem: str | None
