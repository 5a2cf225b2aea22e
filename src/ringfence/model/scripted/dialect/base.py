"""What an API is to the scripted model: how it is asked, and the form of its answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from ringfence.frozen import frozen
from ringfence.model.scripted.asked import Asked
from ringfence.model.scripted.script import JSONObject, Malformed, StreamError, Turn


@frozen
class Refusal:
    """An error, before it takes the form of an API."""

    status: int
    message: str
    type: str | None = None
    """None: the API's own for this status."""
    code: str | None = None
    param: str | None = None


@frozen
class Saying:
    """What is to be said, and to what request."""

    turn: Turn
    blocks: list[JSONObject]
    """In the shape of the Messages API."""
    stem: str
    """Part of all ids; another for each reply of a conversation."""
    request: JSONObject
    asked: Asked


class Dialect(ABC):
    """One API.

    `broken_rule` sees whatever the client sent; the others only bodies that it passed. Nothing raises.
    """

    path: ClassVar[str]
    """Of requests for a reply."""
    request_id_header: ClassVar[str]
    call_prefix: ClassVar[str]
    """How ids of tool calls begin."""

    @abstractmethod
    def broken_rule(self, body: Any) -> Refusal | None:
        """Why the API would not take this body; None if it would."""

    @abstractmethod
    def asked(self, body: JSONObject) -> Asked:
        """What the request asks for."""

    @abstractmethod
    def whole(self, saying: Saying) -> JSONObject:
        """The reply as one object."""

    @abstractmethod
    def frames(self, reply: JSONObject, saying: Saying) -> Iterator[bytes]:
        """The server-sent events by which the API streams what `whole` gave."""

    @abstractmethod
    def broken_frame(self, fault: StreamError | Malformed, reply: JSONObject, sent: int) -> bytes:
        """The event with which a stream breaks, after `sent` others."""

    @abstractmethod
    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:
        """The body of an error."""
