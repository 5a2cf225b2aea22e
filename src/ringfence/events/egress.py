"""Events of the gate: egress of the sandbox, forwards, and published ports."""

from ringfence.events.event import Event


class EgressDecided(Event, frozen=True, kw_only=True, tag="egress.decided"):
    """A process in the sandbox requested a host on the web. It is recorded before the gate connects to the host."""

    sandbox_id: str
    connection: int
    """The number of the connection, counted from 1 in each sandbox."""
    allowed: bool
    method: str
    """`CONNECT` for an encrypted connection, else the request's method; empty if the request could not be read."""
    host: str
    """The host in canonical spelling."""
    port: int
    path: str
    """The path of the request; empty for CONNECT, which hides it."""
    rule: str
    """The rule that decided: as written in the settings, preceded by its preset, or `default`, `never`,
    `private-address`, `server-name`, `tls-only`, `unreadable`, `limit`."""
    reason: str
    """The reason for a refusal."""
    remedy: str = ""
    """The change that would allow the request; empty if there is none."""
    address: str = ""
    """The address that the gate connects to; with `through`, the address that this machine resolves, if any."""
    through: str = ""
    """This machine's own proxy, if it makes the connection; the proxy resolves names itself."""
    repeated: int = 1
    """The number of equal refusals so far; only some of many equal refusals are recorded."""


class EgressClosed(Event, frozen=True, kw_only=True, tag="egress.closed"):
    """An allowed request or connection ended."""

    sandbox_id: str
    connection: int
    host: str
    port: int
    status: int
    """The status of the response; 200 for CONNECT, 502 if the host could not be reached."""
    sent_bytes: int
    """The bytes from the sandbox to the host."""
    received_bytes: int
    """The bytes from the host to the sandbox."""
    ended_by: str
    """`closed`; `inside` or `target` if that side cut the connection off; `limit`, `idle`, `cancelled`; `refused` for a
    request in a tunnel; `denied` after a change of the rules; or the reason why the host could not be reached."""
    duration_ms: float


class EgressIntercepted(Event, frozen=True, kw_only=True, tag="egress.intercepted"):
    """A request to a host with a swap was read. It is recorded before it is sent; `egress.closed` has its status."""

    sandbox_id: str
    connection: int
    """The same number as in `egress.decided` and `egress.closed`."""
    host: str
    method: str
    path: str
    secrets: list[str]
    """The names of the secrets that replaced their placeholders; never their values."""


class PlaceholderStrayed(Event, frozen=True, kw_only=True, tag="egress.placeholder_strayed"):
    """A placeholder was sent to a place where it is not replaced, and where it is useless.

    Placeholders are noticed only in requests that the gate reads.
    """

    sandbox_id: str
    connection: int
    secret: str
    """The name of the placeholder's secret."""
    host: str
    place: str
    """The part of the request: `path`, or the name of a header."""
    repeated: int = 1
    """The number of such requests so far for this secret; only some of many are recorded."""


class EgressChanged(Event, frozen=True, kw_only=True, tag="egress.changed"):
    """The user changed the egress rules of a running sandbox. The change is recorded before it takes effect."""

    sandbox_id: str
    action: str
    """`allow` or `deny`."""
    rule: str
    by: str
    """The name of the user."""
    is_loosening: bool


class ForwardOpened(Event, frozen=True, kw_only=True, tag="forward.opened"):
    """A process in the sandbox connected to a forward. It is recorded before the gate connects to the service."""

    sandbox_id: str
    forward: str
    """The forward as it was granted."""
    connection: int
    """The number of the connection, counted from 1 for each forward of a sandbox."""
    target: str
    address: str
    """The resolved address of the target, to which the gate connects."""


class ForwardClosed(Event, frozen=True, kw_only=True, tag="forward.closed"):
    """A connection to a forwarded service ended."""

    sandbox_id: str
    forward: str
    connection: int
    sent_bytes: int
    """The bytes from the sandbox to the service."""
    received_bytes: int
    """The bytes from the service to the sandbox."""
    ended_by: str
    """`closed`; `inside` or `target` if that side cut the connection off; `cancelled`; or the reason why the service
    could not be reached."""
    duration_ms: float


class ForwardRefused(Event, frozen=True, kw_only=True, tag="forward.refused"):
    """A connection to a forwarded service was refused: its name is unknown, or resolves to a forbidden address."""

    sandbox_id: str
    forward: str
    connection: int
    target: str
    reason: str


class ConnectionFailed(Event, frozen=True, kw_only=True, tag="connection.failed"):
    """A connection from the sandbox ended by an internal error of the gate; the run goes on.

    It is recorded once for each kind: the listener, the error and its place.
    """

    sandbox_id: str
    listener: str
    """The port or the socket in the sandbox to which the connection was made."""
    error: str
    """The type of the error."""
    place: str
    """The file and the line of Ringfence at which it occurred."""


class PortPublished(Event, frozen=True, kw_only=True, tag="port.published"):
    """A port of the sandbox is reachable at `host_port` of the host's loopback interface, at the user's request."""

    sandbox_id: str
    port: int
    host_port: int


class PortWithdrawn(Event, frozen=True, kw_only=True, tag="port.withdrawn"):
    """A port of the sandbox is no longer reachable from the host."""

    sandbox_id: str
    port: int
    host_port: int
    connections: int
    failed: int
    """The number of failed connections: nothing listened in the sandbox, or there were too many at once."""
    sent_bytes: int
    """The bytes from the sandbox to the host."""
    received_bytes: int
    """The bytes from the host to the sandbox."""
