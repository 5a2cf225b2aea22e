"""Events of the record itself, and of the secrets that a run leases."""

from ringfence.events.event import Event


class JournalOpened(Event, frozen=True, kw_only=True, tag="journal.opened"):
    """The first line of every journal: binds it to its run."""

    run_id: str
    format: int
    version: str


class JournalRepaired(Event, frozen=True, kw_only=True, tag="journal.repaired"):
    """A journal whose writer died was opened again. `dropped_bytes` of a line that was never whole were cut off."""

    dropped_bytes: int
    dropped_sha256: str


class FilesRecorded(Event, frozen=True, kw_only=True, tag="files.recorded"):
    """The other files of a record, just before the seal: each name in the run's directory, and its SHA-256."""

    files: dict[str, str]
    is_complete: bool = False
    """Whether all of them are listed; in records of 0.1, only those of certain names are."""


class JournalSealed(Event, frozen=True, kw_only=True, tag="journal.sealed"):
    """The last line of a closed journal: the head it signs is the previous line's hash. All in hexadecimal."""

    head: str
    signature: str
    public_key: str


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
