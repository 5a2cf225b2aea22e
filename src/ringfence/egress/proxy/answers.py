"""The proxy's own answers: a refusal that a person, an agent and a program each can read."""

import re

from ringfence.egress.proxy.decision import Decision

_PHRASE_CHARS = 160
_UNPRINTABLE = re.compile(rb"[^ -~]")


def refusal(decision: Decision, *, status: int = 403, has_body: bool = True) -> bytes:
    """The whole answer to what is refused.

    The reason stands in the status line too: of a refused CONNECT, clients show that and nothing else.
    """
    lines = [f"ringfence: refused: {decision.reason}", f"decided by: {decision.rule}"]
    if decision.remedy:
        lines.append(decision.remedy)
    return _answer(status, f"ringfence: {decision.reason}", lines, "http_request_denied", has_body)


def failure(reason: str, *, has_body: bool = True) -> bytes:
    """The whole answer to what is allowed but could not be had."""
    return _answer(502, f"ringfence: {reason}", [f"ringfence: {reason}"], "destination_unavailable", has_body)


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
"""The answer to a CONNECT that was made."""

ACCESS_DENIED = bytes((21, 3, 3, 0, 2, 2, 49))
"""TLS's alert `access_denied`, fatal (RFC 8446 6.2)."""


def _answer(status: int, phrase: str, lines: list[str], error: str, has_body: bool) -> bytes:
    body = ("\n".join(lines) + "\n").encode() if has_body else b""
    shown = _printable(phrase)[:_PHRASE_CHARS].rstrip()
    return b"".join(
        (
            b"HTTP/1.1 %d %s\r\n" % (status, shown),
            b"Content-Type: text/plain; charset=utf-8\r\n",
            b"Content-Length: %d\r\n" % len(body),
            b"Proxy-Status: ringfence; error=%s\r\n" % error.encode(),  # RFC 9209
            b"Connection: close\r\n\r\n",
            body,
        )
    )


def _printable(text: str) -> bytes:
    return _UNPRINTABLE.sub(b"?", text.encode("ascii", "replace"))
