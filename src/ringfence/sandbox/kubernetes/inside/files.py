"""The first process of the container `files`: carries out requests from stdin until the pod ends: `files DIRECTORY`.

A request is a line of JSON, and so is its answer:

- `{"probe": TARGETS, "seconds": S}`: which of some addresses answer, and the environment. A target is
  [name, host, port, kind]; its host is an address, or a key of `PLACES`; port 0 is that of the API server.
- `{"unpack": SIZE}`, followed by a tar file of that size, which is ringfence's own: `{"unpacked": SIZE}`. Stdin is not
  ended after it, as older clusters cannot do that. Memory does not grow with the number of its files.

An answer of an address is a connection, a reset by the other end itself, or a datagram. An ICMP error does not count:
that is how some network plugins enforce a policy. A listener of the probe's own has to answer, or the probe fails: where
no connection can be opened at all, silence would prove nothing.
"""

import errno
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import tarfile
import time
from collections.abc import Iterator

OF_POD = ("HOSTNAME", "LD_PRELOAD", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
RECVERR = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
"""The option that queues ICMP errors, so that they can be read (ip(7), ipv6(7))."""
NAME = b"\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00"
QUERY = struct.pack(">6H", 1, 256, 1, 0, 0, 0) + NAME + struct.pack(">2H", 1, 1)


# --- probe


def api_server() -> "list[str]":
    """The address of the API server, as the cluster gives it to pods."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    return [host] if host else []


def name_server() -> "list[str]":
    """Where most installers put the cluster's name server: the tenth address of its services."""
    return [host.rpartition(".")[0] + ".10" for host in api_server() if "." in host]


def gateways() -> "list[str]":
    """The pod's default gateways (`/proc/net/route`, proc_pid_net(5))."""
    found = []
    for line in table("/proc/net/route")[1:]:
        _interface, destination, gateway = line.split()[:3]
        if int(destination, 16) == 0 != int(gateway, 16):
            found.append(socket.inet_ntoa(struct.pack("=L", int(gateway, 16))))
    for line in table("/proc/net/ipv6_route"):
        destination, length, _source, _length, gateway, *_, interface = line.split()
        if int(destination, 16) == int(length, 16) == 0 != int(gateway, 16):
            host = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(gateway))
            found.append(f"{host}%{interface}" if host.startswith("fe80:") else host)
    return found


def table(path: str) -> "list[str]":
    """The lines of a file of the kernel's; none where it has no such file."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []


PLACES = {"API SERVER": api_server, "NAME SERVER": name_server, "GATEWAY": gateways}


def ask(host: str, port: int, kind: str) -> "socket.socket | None":
    """Begin to ask an address; return the socket, or None if there is no way to it."""
    try:
        transport = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        [(family, *_, address)] = socket.getaddrinfo(host, port, type=transport, flags=socket.AI_NUMERICHOST)
        one = socket.socket(family, transport)
        one.setblocking(False)
        one.setsockopt(*RECVERR[family], 1)
        if kind == "tcp":
            return one if one.connect_ex(address) in (0, errno.EINPROGRESS) else None
        one.connect(address)
        one.send(QUERY)
        return one
    except OSError:
        return None


def is_answer(one: socket.socket, kind: str) -> bool:
    """Whether what a socket has become ready for is an answer."""
    if kind == "udp":
        try:
            return bool(one.recv(512))
        except OSError:
            return False
    code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code != errno.ECONNREFUSED:
        return code == 0
    try:
        one.recvmsg(512, 512, socket.MSG_ERRQUEUE)
        return False  # an ICMP error
    except OSError:
        return True


def probe(targets: "list[list]", seconds: float) -> "dict[str, object]":  # type: ignore[type-arg]
    """Ask all targets at once; wait for their answers for some seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own = ["the probe itself", *listener.getsockname(), "tcp"]
        waiting = {}
        poll = select.poll()
        for name, place, number, kind in [*targets, own]:
            port = number or int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
            for host in PLACES[place]() if place in PLACES else [place]:
                asking = ask(host, port, kind)
                if asking is not None:
                    waiting[asking.fileno()] = asking, [name, host, port, kind]
                    poll.register(asking, select.POLLOUT if kind == "tcp" else select.POLLIN)
        answered = []
        end = time.monotonic() + seconds
        left = 1.0
        while waiting and left > 0:
            left = end - time.monotonic()  # a process that was stopped for that long still looks once
            for descriptor, _event in poll.poll(max(0, left * 1000)):
                asking, target = waiting.pop(descriptor)
                poll.unregister(descriptor)
                with asking:
                    if is_answer(asking, target[3]):
                        answered.append(target)
        for asking, _target in waiting.values():
            asking.close()
    if own not in answered:
        sys.exit("the probe could not connect to itself")
    answered.remove(own)
    environment = {name: value for name, value in os.environ.items() if name not in OF_POD}
    return {"answered": ["{} ({}:{}, {})".format(*one) for one in answered], "environment": environment}


# --- unpack


class Part(io.RawIOBase):
    """The next bytes of stdin that belong to the file."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        data = STDIN.read1(min(size, self.left)) if self.left else b""
        self.left -= len(data)
        return data


def members(tar: tarfile.TarFile) -> "Iterator[tarfile.TarInfo]":
    """Yield each entry; `tarfile` would keep them all."""
    while (member := tar.next()) is not None:
        yield member
        tar.members = []  # type: ignore[attr-defined]  # typeshed lacks it


def unpack(directory: str, size: int) -> "dict[str, int]":
    """Unpack a file of `size` bytes."""
    source = Part(size)
    with tarfile.open(
        fileobj=source,
        mode="r|",
        bufsize=1 << 20,
        encoding="utf-8",
        errors="surrogateescape",
    ) as tar:
        tar.copybufsize = 1 << 20  # type: ignore[attr-defined]  # typeshed lacks it
        tar.extractall(directory, members(tar), numeric_owner=True)  # noqa: S202 -- ringfence's own
    while source.read(1 << 20):
        pass
    if source.left:
        sys.exit("the stream ended early")
    return {"unpacked": size}


STDIN = open(0, "rb")  # noqa: SIM115
# As the first process of its container it would not end by this signal otherwise.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if hasattr(tarfile, "fully_trusted_filter"):  # since 3.14 another one is the default, which refuses links
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.fully_trusted_filter)
for line in iter(STDIN.readline, b""):
    request = json.loads(line)
    if "unpack" in request:
        reply: object = unpack(sys.argv[1], request["unpack"])
    else:
        reply = probe(request["probe"], request["seconds"])
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()
# Blocked first, as one that came just before the wait would not end it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.sigwait({signal.SIGTERM})
