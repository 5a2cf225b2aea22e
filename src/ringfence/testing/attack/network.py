"""Attacks on the network's isolation: sockets of every kind, the host's sockets, routes, names."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.testing.attack.attack import Attack, Scene, Verdict, probe, run_probe

_GROUP = "network"

_FAMILY = """
for kind in (1, 2, 3, 5):
    for flags in (0, 0o2000000, 0o4000):
        outcome, code = call("socket", FACTS["family"], kind | flags, FACTS["protocol"])
        if outcome != -1:
            end(False, "socket(%d, %d, %d) was made" % (FACTS["family"], kind | flags, FACTS["protocol"]))
end(True, "refused: " + errno.errorcode.get(code, str(code)))
"""

_NETLINK = """
for protocol in range(1, 32):
    for kind in (2, 3):
        if call("socket", 16, kind | 0o2000000, protocol)[0] != -1:
            end(False, "netlink protocol %d was opened" % protocol)
end(True, "only NETLINK_ROUTE")
"""

_RAW = """
for family in (2, 10):
    for kind in (3, 10):
        for flags in (0, 0o2000000, 0o4000, 0o2004000):
            for protocol in (1, 6, 17, 58, 255):
                if call("socket", family, kind | flags, protocol)[0] != -1:
                    end(False, "a raw socket was opened: %d, %d, %d" % (family, kind | flags, protocol))
end(True, "refused")
"""

_INTERFACES = """
names = sorted(name for _, name in socket.if_nameindex())
if names != ["lo"]:
    end(False, "interfaces: " + ", ".join(names))
with open("/proc/net/route") as file:
    routes = file.read().splitlines()[1:]
if routes:
    end(False, "a route: " + routes[0])
NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
# Connecting a datagram socket sends nothing; the kernel only looks for a route.
for family, address in ((socket.AF_INET, "1.1.1.1"), (socket.AF_INET, "169.254.169.254"),
                        (socket.AF_INET, "10.0.0.1"), (socket.AF_INET6, "2606:4700:4700::1111")):
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect((address, 53))
        end(False, "there is a way to " + address)
    except OSError as error:
        if error.errno not in NO_WAY:
            end(False, address + ": " + str(error))
end(True, "loopback only, no route")
"""

_NAMES = """
started = time.monotonic()
try:
    socket.getaddrinfo("example.com", 443)
    end(False, "a name was resolved")
except OSError as error:
    took = time.monotonic() - started
    end(took < 5, "no names: %s, after %.1f s" % (error, took))
"""

_REACH = """
kind, address = FACTS["kind"], FACTS["address"]
family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
target = ("127.0.0.1", address) if kind == "tcp" else "\\0" + address if kind == "abstract" else address
with socket.socket(family, socket.SOCK_STREAM) as one:
    one.settimeout(5)
    try:
        one.connect(target)
    except OSError as error:
        end(True, "not reachable: " + str(error))
end(False, "connected to the host's socket %r" % (address,))
"""

_ENGINES = """
runtime = "/run/user/%d/" % os.getuid()
names = [runtime + one for one in ("bus", "systemd/private", "podman/podman.sock", "docker.sock")]
names += ["/run/" + one for one in (
    "docker.sock", "containerd/containerd.sock", "podman/podman.sock", "crio/crio.sock", "snapd.socket",
    "dbus/system_bus_socket", "systemd/private")]
there = [name for name in names if os.path.lexists(name)]
for top in ("/run", "/var/run", "/tmp"):
    for path, _, files in os.walk(top):
        paths = [os.path.join(path, one) for one in files]
        there += [one for one in paths if os.path.lexists(one) and stat.S_ISSOCK(os.lstat(one).st_mode)]
end(not there, "sockets: " + ", ".join(there[:5]) if there else "none")
"""


@contextmanager
def _listening(kind: str, directory: Path) -> Iterator[str | int]:
    """Listen on a host socket to which any user may connect; yield its address."""
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    name = f"ringfence-{secrets.token_hex(6)}"
    # The path of a Unix socket has at most 107 bytes.
    path = directory / name
    with socket.socket(family, socket.SOCK_STREAM) as one:
        if kind == "tcp":
            one.bind(("127.0.0.1", 0))
        elif kind == "abstract":
            one.bind("\0" + name)
        else:
            one.bind(str(path))
            path.chmod(0o666)
        one.listen()
        try:
            yield one.getsockname()[1] if kind == "tcp" else name if kind == "abstract" else str(path)
        finally:
            path.unlink(missing_ok=True)


async def _reach(scene: Scene, kind: str, directory: Path) -> Verdict:
    with _listening(kind, directory) as address:
        return await run_probe(scene.shared, _REACH, kind=kind, address=address)


async def _host_loopback(scene: Scene) -> Verdict:
    return await _reach(scene, "tcp", scene.outside)


async def _abstract_socket(scene: Scene) -> Verdict:
    return await _reach(scene, "abstract", scene.outside)


async def _socket_file(scene: Scene) -> Verdict:
    # Not in `outside`, whose path may be too long for the address of a Unix socket.
    return await _reach(scene, "path", Path("/tmp"))  # noqa: S108 - unique name, removed at once


def _family(name: str, promise: str, family: int, protocol: int = 0) -> Attack:
    return Attack(name, _GROUP, promise, probe(f"{_FAMILY}", family=family, protocol=protocol))


ATTACKS = (
    Attack(
        "interfaces",
        _GROUP,
        "There is a loopback interface and nothing else, and no route.",
        probe(_INTERFACES),
    ),
    Attack("names", _GROUP, "No name is resolved by anybody outside.", probe(_NAMES), is_harmless=False),
    Attack("host-loopback", _GROUP, "What listens on the host's loopback cannot be reached.", _host_loopback),
    Attack(
        "abstract-sockets", _GROUP, "Abstract unix sockets of the host cannot be reached.", _abstract_socket
    ),
    Attack(
        "socket-files", _GROUP, "Unix sockets of the host cannot be reached by their paths.", _socket_file
    ),
    Attack("engine-sockets", _GROUP, "No socket of a container engine or bus is there.", probe(_ENGINES)),
    Attack("netlink", _GROUP, "Netlink speaks of routes only.", probe(_NETLINK)),
    Attack("raw-sockets", _GROUP, "No raw socket can be opened.", probe(_RAW)),
    _family("packet-sockets", "No packet socket can be opened.", 17, 0x0300),
    _family("af-alg", "The kernel's crypto sockets cannot be opened.", 38),
    _family("af-vsock", "Sockets to the hypervisor cannot be opened.", 40),
)
"""All attacks, in the order of the report."""
