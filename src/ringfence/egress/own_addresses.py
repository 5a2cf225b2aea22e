"""Whether an address is this machine's own, by the kernel's account. Nothing is sent."""

import socket

from ringfence.egress.address import Address, embedded

_ANY_PORT = 9


def is_own_address(address: Address) -> bool:
    """Whether what is sent to `address` stays on this machine: the kernel then takes it as the source, too."""
    if embedded(address).is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _ANY_PORT))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        return False  # no way there at all
