"""A small MCP server of the standard library, run inside a sandbox; its argument says how it misbehaves."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {
    "many": [{"name": f"t{n}", "inputSchema": SCHEMA} for n in range(500)],
    "big-schema": [{"name": "echo", "inputSchema": {**SCHEMA, "description": "x" * 100_000}}],
    "long-name": [{"name": "e" * 200, "inputSchema": SCHEMA}],
    "twice": [{"name": "e.o", "inputSchema": SCHEMA}, {"name": "e_o", "inputSchema": SCHEMA}],
}


def send(message: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def reply(request: dict[str, Any], **result: object) -> None:
    """The answer to a request."""
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def call(request: dict[str, Any]) -> None:
    """Do what the tool does, or misbehave."""
    text = request["params"]["arguments"].get("text", "")
    MISDEEDS.get(MODE, lambda: None)()
    reply(request, **ANSWERS.get(MODE, {}) or {"content": [{"type": "text", "text": f"echo {text}"}]})


def forever(act: Callable[[], object]) -> Callable[[], None]:
    """Do it again and again."""

    def again() -> None:
        while True:
            act()

    return again


NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
MISDEEDS: dict[str, Callable[[], object]] = {
    "die": lambda: sys.exit(3),
    "hang": lambda: time.sleep(1000),
    "huge-line": forever(lambda: sys.stdout.write("x" * 1_000_000)),
    "flood": forever(lambda: send({**NOTIFICATION, "params": {"level": "info", "data": "x" * 100_000}})),
    "requests": forever(lambda: send({"jsonrpc": "2.0", "id": "x", "method": "ping"})),
    "junk": lambda: sys.stdout.write("not JSON\n{}\n[1]\n\xff\n"),
}
ANSWERS: dict[str, dict[str, Any]] = {
    "wrong-shape": {"content": "no list"},
    "error": {"content": [{"type": "text", "text": "cannot"}], "isError": True},
    "image": {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
    "structured": {"content": [], "structuredContent": {"not": "promised"}},
}


def main() -> None:
    """Serve."""
    sys.stderr.write("log\n" * 100_000)
    if MODE == "silent":
        time.sleep(1000)
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            reply(
                request,
                protocolVersion=request["params"]["protocolVersion"],
                capabilities={"tools": {}},
                serverInfo={"name": "example", "version": "1"},
            )
        elif method == "tools/list":
            default = [
                {"name": "echo", "description": "Say it.", "inputSchema": SCHEMA, "outputSchema": SCHEMA}
            ]
            reply(request, tools=TOOLS.get(MODE, default))
        elif method == "tools/call":
            call(request)
        elif "id" in request:
            send(
                {
                    "jsonrpc": "2.0",
                    "id": request["id"],
                    "error": {"code": -32601, "message": "no such method"},
                }
            )


main()
