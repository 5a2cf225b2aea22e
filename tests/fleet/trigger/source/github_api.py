"""A stand-in for GitHub's REST API: real HTTP on loopback, with faults on demand."""

import asyncio
import itertools
import json
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

USER = "crew"
TOKEN = "gh-token"


@dataclass
class Fault:
    """A response to a request, instead of the usual one."""

    method: str
    part: str
    """A part of the path of the request."""
    response: Response
    is_done_anyway: bool = False
    """Whether the request takes effect, and only its response is lost."""


@dataclass
class GitHub:
    """The state of one repository, and the requests it received."""

    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    asked: list[str] = field(default_factory=list)
    url: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    turn: Callable[[], Awaitable[None]] | None = None
    """Awaited before each request, to interleave those of several callers."""

    def open_issue(self, title: str, body: str | None, *labels: str, **more: Any) -> str:
        """Add an issue; return its number."""
        number = next(self.numbers)
        self.issues[number] = {
            "number": number,
            "title": title,
            "body": body,
            "state": "open",
            "labels": [{"name": label} for label in labels],
            "created_at": f"2026-01-01T00:00:{number % 60:02}Z",
            "html_url": f"{self.url}/o/r/issues/{number}",
            **more,
        }
        return str(number)

    def add_comment(self, issue: int, body: str, author: str, association: str) -> dict[str, Any]:
        """Add a comment."""
        number = next(self.numbers)
        comment = {"id": number, "body": body, "user": {"login": author}, "author_association": association}
        self.comments[number] = {"issue": issue, **comment}
        return comment

    def labels(self, id: str) -> set[str]:
        """Return the labels of an issue."""
        return {label["name"] for label in self.issues[int(id)]["labels"]}

    def words(self, id: str) -> list[str]:
        """Return all comments of an issue."""
        return [comment["body"] for comment in self.comments.values() if comment["issue"] == int(id)]


@contextmanager
def serving(github: GitHub) -> Iterator[GitHub]:
    """Serve the API on a loopback port."""
    listening = socket.create_server(("127.0.0.1", 0))
    github.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(_app(github), log_level="error", lifespan="off", timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield github
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()


def _app(github: GitHub) -> Starlette:
    async def handle(request: Request) -> Response:
        github.asked.append(f"{request.method} {request.url.path}")
        body = await request.body()
        if github.turn is not None:
            await github.turn()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"message": "Bad credentials"}, 401)
        fault = github.faults[0] if github.faults else None
        if fault and (fault.method, fault.part in request.url.path) == (request.method, True):
            github.faults.popleft()
            if fault.is_done_anyway:
                _act(github, request, body)
            return fault.response
        return _act(github, request, body)

    methods = ["GET", "POST", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", handle, methods=methods)])


def _act(github: GitHub, request: Request, body: bytes) -> Response:
    parts = request.url.path.strip("/").split("/")
    sent = json.loads(body) if body else {}
    match (request.method, parts):
        case ("GET", ["user"]):
            return JSONResponse({"login": USER})
        case ("GET", ["repos", "o", "r", "issues"]):
            return _list(github, request)
        case ("DELETE", ["repos", "o", "r", "issues", "comments", number]):
            return Response(status_code=204 if github.comments.pop(int(number), None) else 404)
        case (_, ["repos", "o", "r", "issues", number, *rest]) if int(number) in github.issues:
            return _issue(github, request, int(number), rest, sent)
    return JSONResponse({"message": "Not Found"}, 404)


def _list(github: GitHub, request: Request) -> Response:
    query = request.query_params
    found = [
        issue
        for number, issue in sorted(github.issues.items())
        if issue["state"] == query["state"] and query["labels"] in github.labels(str(number))
    ]
    return JSONResponse(_page(found, request))


def _issue(github: GitHub, request: Request, number: int, rest: list[str], sent: dict[str, Any]) -> Response:
    issue = github.issues[number]
    match (request.method, rest):
        case ("GET", []):
            return JSONResponse(issue)
        case ("PATCH", []):
            issue.update(sent)
            return JSONResponse(issue)
        case ("GET", ["comments"]):
            found = [comment for _, comment in sorted(github.comments.items()) if comment["issue"] == number]
            return JSONResponse(_page(found, request))
        case ("POST", ["comments"]):
            return JSONResponse(github.add_comment(number, sent["body"], USER, "NONE"), 201)
        case ("POST", ["labels"]):
            named = github.labels(str(number)) | set(sent["labels"])
            issue["labels"] = [{"name": name} for name in sorted(named)]
            return JSONResponse(issue["labels"])
        case ("DELETE", ["labels", name]) if name in github.labels(str(number)):
            issue["labels"] = [label for label in issue["labels"] if label["name"] != name]
            return JSONResponse(issue["labels"])
    return JSONResponse({"message": "Not Found"}, 404)


def _page(found: list[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
    size, page = int(request.query_params["per_page"]), int(request.query_params["page"])
    return found[(page - 1) * size : page * size]


async def mixed() -> None:
    """Let requests of others go first, now and then."""
    import random

    for _ in range(random.randrange(5)):
        await asyncio.sleep(0)
