"""Messages as they are on the wire: older revisions, unknown ones, and what is no message at all."""

import json

import pytest
from tests.integrations.mcp.conftest import RawClient

from ringfence.integrations.mcp.server import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_older_revisions_are_served(raw: RawClient, revision: str):
    """A client of an older revision gets that revision, and the same tools."""
    assert raw.begin(revision)["result"]["protocolVersion"] == revision
    tools = {tool["name"]: tool for tool in raw.request("tools/list")["result"]["tools"]}
    assert len(tools) == 15
    assert tools["command_run"]["inputSchema"]["required"] == ["sandbox"]
    assert raw.call("sandbox_list") == {"sandboxes": []}
    assert raw.end() == 0


def test_an_unknown_revision_of_the_handshake_gets_a_known_one(raw: RawClient):
    """The handshake lets the server name a revision that it serves; the client may leave then."""
    assert raw.begin("2099-01-01")["result"]["protocolVersion"] == "2025-11-25"


def test_an_unknown_revision_without_handshake_is_refused(raw: RawClient):
    """Since 2026-07-28 each request names its revision, and the error names those that are served."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    error = raw.request("tools/list", _meta=meta)["error"]
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_an_unknown_tool_is_an_error_of_the_protocol(raw: RawClient):
    """The error names the tools that exist."""
    raw.begin("2025-11-25")
    error = raw.request("tools/call", name="sandbox_destroy", arguments={})["error"]
    assert error["code"] == -32602
    assert "there is no tool 'sandbox_destroy'; there are: sandbox_open, " in error["message"]


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        pytest.param(b"hello", None, id="no JSON"),
        pytest.param(b"[" * 100_000, None, id="deep"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"\\ud800"}', 7, id="first"),
        pytest.param(b'{"method":"x\xff","params":[],"jsonrpc":"2.0","id":"seven"}', "seven", id="last"),
        pytest.param(b'{"method":"x\xff","params":{"id":7}}', None, id="in parameters"),
        pytest.param(b'{"method":"x\xff","params":"\\"id\\":\\"7\\"}"}', None, id="in text"),
    ],
)
def test_a_line_that_is_no_message_is_answered(raw: RawClient, line: bytes, request_id: object):
    """The error belongs to the request if its id can be read, and the session goes on."""
    raw.begin("2025-11-25")
    raw.send(line)
    answer = raw.receive()
    assert (answer["id"], answer["error"]["code"]) == (request_id, -32700)
    assert raw.call("sandbox_list") == {"sandboxes": []}


@pytest.mark.parametrize("order", ["first", "last"])
def test_an_oversized_message_is_refused_whole(raw: RawClient, order: str):
    """A message beyond the limit is skipped without being kept, and its request gets the error."""
    raw.begin("2025-11-25")
    padding = (
        b'"params":{"name":"sandbox_open","arguments":{"workspace":"'
        + b"a" * (MAX_MESSAGE_BYTES + 1)
        + b'"}}'
    )
    if order == "first":
        raw.send(b'{"jsonrpc":"2.0","id":70,"method":"tools/call",' + padding + b"}")
    else:
        raw.send(b'{"method":"tools/call",' + padding + b',"jsonrpc":"2.0","id":70}')
    answer = raw.receive()
    assert (answer["id"], answer["error"]["code"]) == (70, -32600)
    assert str(MAX_MESSAGE_BYTES) in answer["error"]["message"]
    assert raw.call("sandbox_list") == {"sandboxes": []}


def test_output_is_harmless_on_the_wire(raw: RawClient):
    """Whatever a program prints, a result is plain ASCII text that no terminal obeys."""
    raw.begin("2025-11-25")
    sandbox = raw.call("sandbox_open")["sandbox"]
    command = r"printf '\033[2J\302\233\342\200\256\177\377'"
    arguments = {"sandbox": sandbox, "command": command}
    response = raw.request("tools/call", name="command_run", arguments=arguments)
    text = response["result"]["content"][0]["text"]
    assert text.isascii()
    assert text.isprintable()
    result = json.loads(text)
    assert (result["stdout"], result["is_replaced"]) == ("\x1b[2J\x9b\u202e\x7f\ufffd", True)
