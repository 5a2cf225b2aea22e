"""Prints which of some addresses answer, and its environment, as JSON: `probe TARGETS SECONDS`.

A target is [name, host, port, kind]. The API server and its likely name server are added.

An answer is a connection, a reset by the other end itself, or a datagram. An ICMP error does not count as an answer:
that is how some network plugins enforce a policy. A listener of the probe's own has to answer, or the probe fails: where
no connection can be opened at all, silence would prove nothing.
"""

import errno
import json
import os
import select
import socket
import struct
import sys
import time

OF_POD = ("HOSTNAME", "LD_PRELOAD", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
RECVERR = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
"""The option that queues ICMP errors, so that they can be read (ip(7), ipv6(7))."""
NAME = b"\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00"
QUERY = struct.pack(">6H", 1, 256, 1, 0, 0, 0) + NAME + struct.pack(">2H", 1, 1)


def ask(host: str, port: int, kind: str) -> "socket.socket | None":
    """Begin to ask an address; return the socket, or None if there is no way to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        one = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        one.setblocking(False)
        one.setsockopt(*RECVERR[family], 1)
        if kind == "tcp":
            return one if one.connect_ex((host, port)) in (0, errno.EINPROGRESS) else None
        one.connect((host, port))
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


targets = json.loads(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
own = ["the probe itself", *listener.getsockname(), "tcp"]
targets.append(own)
server = os.environ.get("KUBERNETES_SERVICE_HOST")
if server:
    targets.append(["the API server", server, int(os.environ.get("KUBERNETES_SERVICE_PORT", "443")), "tcp"])
    name_server = server.rpartition(".")[0] + ".10"  # where most installers put it
    targets += [["a name server", name_server, 53, kind] for kind in ("udp", "tcp") if "." in server]
waiting = {}
for target in targets:
    asking = ask(target[1], target[2], target[3])
    if asking is not None:
        waiting[asking.fileno()] = asking, target
poll = select.poll()
for descriptor, (_, target) in waiting.items():
    poll.register(descriptor, select.POLLOUT if target[3] == "tcp" else select.POLLIN)
answered = []
end = time.monotonic() + float(sys.argv[2])
left = 1.0
while waiting and left > 0:
    left = end - time.monotonic()  # a process that was stopped for that long still looks once
    for descriptor, _event in poll.poll(max(0, left * 1000)):
        asking, target = waiting.pop(descriptor)
        poll.unregister(descriptor)
        if is_answer(asking, target[3]):
            answered.append(target)
if own not in answered:
    sys.exit("the probe could not connect to itself")
answered.remove(own)
shown = ["{} ({}:{}, {})".format(*target) for target in answered]
environment = {name: value for name, value in os.environ.items() if name not in OF_POD}
os.write(1, json.dumps({"answered": shown, "environment": environment}).encode())
