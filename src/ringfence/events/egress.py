"""Events of the gate: what leaves the sandbox, forwards, and published ports."""

from ringfence.events.event import Event


class EgressDecided(Event, frozen=True, kw_only=True, tag="egress.decided"):
    """A process inside asked for a host on the web. In the journal before the host is called."""

    sandbox_id: str
    connection: int
    """Counted from 1 for each sandbox."""
    allowed: bool
    method: str
    """`CONNECT` for what is encrypted, else that of the request; empty if it could not be read."""
    host: str
    """In its one spelling."""
    port: int
    path: str
    """Of a request; empty for CONNECT, in which it cannot be seen."""
    rule: str
    """Which one decided: as it is written in the settings, with the preset before it, or `default`, `never`,
    `private-address`, `server-name`, `tls-only`, `unreadable`, `limit`."""
    reason: str
    """Why it was refused."""
    remedy: str = ""
    """What would allow it; empty if nothing does."""
    address: str = ""
    """What the host was resolved to, and is called at; with `through`, what is known of it here, if anything."""
    through: str = ""
    """This machine's own proxy that is asked to connect; it looks names up by itself."""
    repeated: int = 1
    """How often the same was refused by now: of many alike, only some are told."""


class EgressClosed(Event, frozen=True, kw_only=True, tag="egress.closed"):
    """A request or connection that was let out is over."""

    sandbox_id: str
    connection: int
    host: str
    port: int
    status: int
    """Of the answer to a request; 200 for CONNECT, 502 if the host could not be reached."""
    sent_bytes: int
    """From inside to the host."""
    received_bytes: int
    """From the host to inside."""
    ended_by: str
    """`closed`; `inside` or `target`, who cut it off; `limit`, `idle`, `cancelled`; `refused`, for what was in a tunnel;
    `denied`, by a change of the rules; or why the host could not be reached."""
    duration_ms: float


class EgressIntercepted(Event, frozen=True, kw_only=True, tag="egress.intercepted"):
    """A request to a host with a swap was read. In the journal before it is sent; its status is in `egress.closed`."""

    sandbox_id: str
    connection: int
    """That of the decision and of the end, too."""
    host: str
    method: str
    path: str
    secrets: list[str]
    """Names of those that were put in the place of their placeholders; never the values."""


class PlaceholderStrayed(Event, frozen=True, kw_only=True, tag="egress.placeholder_strayed"):
    """A placeholder was sent where it is not replaced: a useless string there. Seen only where requests are read."""

    sandbox_id: str
    connection: int
    secret: str
    """The name of what it stands for."""
    host: str
    place: str
    """`path`, or the header's name."""
    repeated: int = 1
    """How often that was seen of this secret by now; of many, only some are told."""


class EgressChanged(Event, frozen=True, kw_only=True, tag="egress.changed"):
    """The user changed what a running sandbox may reach. In the journal before it holds."""

    sandbox_id: str
    action: str
    """`allow` or `deny`."""
    rule: str
    by: str
    """Who asked: the user's name."""
    is_loosening: bool


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
