"""Events about what passes the gate beside plain decisions: changes of the rules, and credentials that are put in."""

from ringfence.events.event import Event


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
