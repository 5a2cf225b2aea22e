"""Addresses and ports that no grant opens. Applied both to a rule's host and to the addresses it resolves to. Pure."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

_METADATA = {
    # From the clouds' own documentation: AWS, Azure, GCP and most others use 169.254.169.254 (in a refused network).
    IPv4Address("100.100.100.200"): "Alibaba Cloud",
    IPv4Address("168.63.129.16"): "Azure's wire server",
    IPv4Address("192.0.0.192"): "Oracle Cloud",
    IPv6Address("fd00:ec2::254"): "AWS",
    IPv6Address("fd00:ec2::123"): "AWS",
    IPv6Address("fd00:ec2::253"): "AWS",
    IPv6Address("fd20:ce::254"): "Google Cloud",
    IPv6Address("fd00:c1::a9fe:a9fe"): "Oracle Cloud",
    IPv6Address("fd00:42::42"): "Scaleway",
}
METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
"""Names under which clouds serve the machine's own credentials."""
ENGINE_PORTS = frozenset({2375, 2376, 2377})
"""Ports of Docker's API and of Swarm, whose clients are root on its machine."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""For a network's own translators (RFC 8215), which choose the position of the IPv4 address."""
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The addresses allocated so far; the rest is private or unused."""
_NOT_PUBLIC = (
    # Python's `ipaddress` has these only in later versions, or only in part.
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("3fff::/20"),
)


def refused_target(host: str, port: int) -> str | None:
    """Return why no grant may lead to `host:port`, without resolving it; None if one may."""
    if host in METADATA_NAMES:
        return f"{host!r} is where a cloud hands out the machine's credentials"
    if port in ENGINE_PORTS:
        return f"port {port} is a container engine's: whoever speaks with it is root there; use `engine:` instead"
    try:
        return refused_address(ipaddress.ip_address(host))
    except ValueError:
        return None


def refused_address(address: Address) -> str | None:
    """Return why no connection may be made to `address`, whatever its name; None if one may."""
    plain = embedded(address)
    if plain in _METADATA or plain.is_link_local:
        return f"{plain} is where a cloud hands out the machine's credentials, or of one link only"
    if plain.is_unspecified or plain.is_multicast or plain == IPv4Address("255.255.255.255"):
        return f"{plain} is not the address of one machine"
    return None


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet, as far as the address shows."""
    plain = embedded(address)
    if any(plain.version == network.version and plain in network for network in _NOT_PUBLIC):
        return False
    if isinstance(plain, IPv6Address):
        return plain in _GLOBAL_UNICAST and plain.is_global
    is_known_way = isinstance(address, IPv4Address) or bool(
        address.ipv4_mapped or address.sixtofour or address in _NAT64
    )
    return is_known_way and plain.is_global


def embedded(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address (mapped, translated, compatible, 6to4, NAT64), else itself."""
    if isinstance(address, IPv4Address):
        return address
    for inner in (address.ipv4_mapped, address.sixtofour):
        if inner is not None:
            return inner
    number = int(address)
    if any(address in network for network in (_NAT64, _LOCAL_NAT64, _TRANSLATED)) or 1 < number < 1 << 32:
        return IPv4Address(number & 0xFFFF_FFFF)
    return IPv6Address(number)  # without a scope
