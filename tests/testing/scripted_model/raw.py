"""A client that shows what was on the wire: h11 on a plain socket."""

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    data: bytes
    is_complete: bool
    """Whether the end of the message came before the end of the connection."""


def exchange(
    base_url: str, path: str, body: Any, *, method: str = "POST", headers: dict[str, str] | None = None
) -> RawAnswer:
    """One request on a connection of its own; blocks, with a deadline."""
    address = urlsplit(base_url)
    sent = b"" if body is None else json.dumps(body).encode()
    head = {"host": address.netloc, "content-length": str(len(sent)), "connection": "close"}
    given = {"authorization": "Bearer any"} if headers is None else headers
    connection = h11.Connection(h11.CLIENT)
    with socket.create_connection((address.hostname, address.port), timeout=30) as stream:
        request = h11.Request(method=method, target=path, headers=list({**head, **given}.items()))
        for event in (request, h11.Data(data=sent), h11.EndOfMessage()):
            stream.sendall(connection.send(event) or b"")
        return _answer(connection, stream)


def _answer(connection: h11.Connection, stream: socket.socket) -> RawAnswer:
    status, data = 0, bytearray()
    headers: dict[str, str] = {}
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return RawAnswer(status, headers, bytes(data), is_complete=False)
        if event is h11.NEED_DATA:
            connection.receive_data(stream.recv(65536))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            data += event.data
        else:
            return RawAnswer(status, headers, bytes(data), is_complete=isinstance(event, h11.EndOfMessage))
