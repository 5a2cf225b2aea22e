"""The program `double.py` of the clients' tests, under the SDK's control protocol. Run as a program inside.

Its prompt is a list of steps, as there; `ask` asks the host and prints the answer, as a note.
"""

from typing import Any

PROGRAM = """
import threading

ANSWERS = {}
CAME = threading.Condition()
PROMPTS = []
INTERRUPTED = []


def listen():
    for text in sys.stdin:
        value = json.loads(text)
        with CAME:
            if value["type"] == "control_response":
                ANSWERS[value["response"]["request_id"]] = value["response"]
            elif value["type"] == "user":
                PROMPTS.append(value["message"]["content"])
            elif value["request"]["subtype"] == "interrupt":
                INTERRUPTED.append(True)
            else:
                answered = {"subtype": "success", "request_id": value["request_id"], "response": {}}
                line({"type": "control_response", "response": answered})
            CAME.notify_all()


def ask(request_id, request):
    line({"type": "control_request", "request_id": request_id, "request": request})


def hear(request_id):
    with CAME:
        CAME.wait_for(lambda: request_id in ANSWERS)
    line({"type": "answered", "answer": ANSWERS[request_id]})


def until_interrupted():
    with CAME:
        CAME.wait_for(lambda: INTERRUPTED)
    result("interrupted", subtype="error_during_execution", is_error=True)


def surroundings():
    line({"type": "surroundings", "environment": dict(os.environ), "arguments": sys.argv})


for step in (ask, hear, until_interrupted, surroundings):
    STEPS[step.__name__] = step
threading.Thread(target=listen, daemon=True).start()
with CAME:
    CAME.wait_for(lambda: PROMPTS)
for name, *arguments in json.loads(PROMPTS[0]):
    options = arguments.pop() if arguments and isinstance(arguments[-1], dict) and name == "result" else {}
    STEPS[name](*arguments, **options)
"""


def program(source: str) -> bytes:
    """The whole program.

    Args:
        source: Of the double without the protocol.
    """
    body = source.partition("\ndef main()")[0]
    return f"#!/usr/bin/env python3\n{body}\n{PROGRAM}".encode()


def call(**arguments: Any) -> dict[str, Any]:
    """What asks for a call of the tool `add`."""
    params = {"name": "add", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return {"subtype": "mcp_message", "server_name": "host", "message": message}


def greet() -> dict[str, Any]:
    """What a server must hear first."""
    client = {"name": "double", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return {"subtype": "mcp_message", "server_name": "host", "message": message}
