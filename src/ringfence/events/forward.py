"""What happens on the ways between inside and services or ports of the host."""

from ringfence.events.event import Event


class ForwardOpened(Event, frozen=True, kw_only=True, tag="forward.opened"):
    """A process inside connected to a forwarded service. In the journal before the service is called."""

    sandbox_id: str
    forward: str
    """As it was granted."""
    connection: int
    """Counted from 1 for each forward of a sandbox."""
    target: str
    address: str
    """What the target resolved to, and is called at."""


class ForwardClosed(Event, frozen=True, kw_only=True, tag="forward.closed"):
    """A connection to a forwarded service is over."""

    sandbox_id: str
    forward: str
    connection: int
    sent_bytes: int
    """From inside to the service."""
    received_bytes: int
    """From the service to inside."""
    ended_by: str
    """`closed`; `inside` or `target`, who cut it off; `cancelled`; or why the service could not be reached."""
    duration_ms: float


class ForwardRefused(Event, frozen=True, kw_only=True, tag="forward.refused"):
    """A connection to a forwarded service was not made: its name is not known, or leads where nothing may."""

    sandbox_id: str
    forward: str
    connection: int
    target: str
    reason: str


class PortPublished(Event, frozen=True, kw_only=True, tag="port.published"):
    """A port inside can be reached at `host_port` of the host's loopback, because somebody asked for it."""

    sandbox_id: str
    port: int
    host_port: int


class PortWithdrawn(Event, frozen=True, kw_only=True, tag="port.withdrawn"):
    """A port inside can no longer be reached from the host."""

    sandbox_id: str
    port: int
    host_port: int
    connections: int
    failed: int
    """Connections that were not made: nobody listened inside, or there were too many at once."""
    sent_bytes: int
    """From inside to the host."""
    received_bytes: int
    """From the host to inside."""
