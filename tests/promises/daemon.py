"""A fleet with its daemon: driven by commands, and asked by HTTP on its socket."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.promises.product import Product, give, poll
from tests.promises.spelling import read_document


class _Connection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, file: Path) -> None:
        super().__init__("fleet", timeout=60)
        self.file = str(file)

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.file)


@dataclass(frozen=True)
class Answer:
    """What the daemon answered."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return read_document(json.loads(self.body))


@dataclass
class Fleet:
    """A fleet of a product."""

    product: Product

    def workspace(self, name: str) -> str:
        """A directory for an agent to work on; its path."""
        place = self.product.place / "workspaces" / name
        place.mkdir(parents=True)
        (place / "app.py").write_text("print('one')\n")
        give(place)
        return str(place)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask the daemon."""
        connection = _Connection(self.product.file("daemon socket"))
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            found = Answer(answer.status, answer.read())
        connection.close()
        return found

    def get(self, path: str) -> Any:
        """What the daemon answers to a question that makes sense."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def enter(self, agent: str, **request: Any) -> str:
        """Enter a job; its id."""
        answer = self.ask("POST", f"/v1/agents/{agent}/jobs", request)
        assert answer.status == 201, answer
        return str(answer.json["job"]["id"])

    def ends(self, job: str) -> Any:
        """A job, once it has ended."""
        return poll(lambda: found if (found := self.get(f"/v1/jobs/{job}"))["ended_at"] else None)

    def does(self, agent: str, **request: Any) -> Any:
        """A new job, once it has ended."""
        return self.ends(self.enter(agent, **request))

    def jobs(self, agent: str) -> Any:
        """An agent's jobs, the newest first."""
        return self.get(f"/v1/jobs?agent={agent}")

    def up(self) -> None:
        """Start the daemon."""
        self.product.does("trust", "--yes")
        self.product.does("fleet up", "--detach")

    def down(self) -> None:
        """End it, if it is there."""
        if self.product.file("daemon socket").exists():
            self.product("fleet down", "--now")


@contextmanager
def fleet_of(product: Product) -> Iterator[Fleet]:
    """A fleet whose daemon is ended in the end, if one was started."""
    fleet = Fleet(product)
    try:
        yield fleet
    finally:
        fleet.down()
