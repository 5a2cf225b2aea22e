"""Events of the record itself, and of the secrets that a run leases."""

from ringfence.events.event import Event


class JournalOpened(Event, frozen=True, kw_only=True, tag="journal.opened"):
    """The first line of every journal. It binds the journal to its run."""

    run_id: str
    format: int
    version: str


class JournalRepaired(Event, frozen=True, kw_only=True, tag="journal.repaired"):
    """A journal whose writer died was reopened. `dropped_bytes` of an incomplete last line were removed."""

    dropped_bytes: int
    dropped_sha256: str


class FilesRecorded(Event, frozen=True, kw_only=True, tag="files.recorded"):
    """The other files of a record, listed before the seal: each name in the run's directory, and its SHA-256."""

    files: dict[str, str]
    is_complete: bool = False
    """Whether all files are listed. Version 0.1 listed only files with certain names."""


class JournalSealed(Event, frozen=True, kw_only=True, tag="journal.sealed"):
    """The last line of a closed journal. It signs the head, the previous line's hash. All fields are hexadecimal."""

    head: str
    signature: str
    public_key: str


class SecretLeased(Event, frozen=True, kw_only=True, tag="secret.leased"):
    """A secret was leased to the run. Times are in UTC."""

    lease: str
    secret: str
    source: str
    expires_at: str | None


class SecretExpiring(Event, frozen=True, kw_only=True, tag="secret.expiring"):
    """A secret that the run holds expires soon and could not be renewed."""

    lease: str
    secret: str
    expires_at: str | None
    reason: str


class SecretRevoked(Event, frozen=True, kw_only=True, tag="secret.revoked"):
    """A secret's lease ended, and the secret was revoked if its source supports that. `problem` says why that failed."""

    lease: str
    secret: str
    problem: str | None
