"""What goes round the policy on the provider's side, and what becomes of it."""

import json
from typing import Any

import pytest

from ringfence.egress.gateway.policy import ModelPolicy, betas, check_pointers, clean
from ringfence.egress.gateway.routes import Api, Rejected

NOTHING = ModelPolicy()
OWN = {"name": "bash", "input_schema": {"type": "object"}}

STRIPPED: list[tuple[Api, dict[str, Any], str]] = [
    ("messages", {"tools": [OWN, {"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
    ("messages", {"tools": [OWN, {"type": "web_fetch_20250910", "name": "web_fetch"}]}, "web_fetch"),
    ("messages", {"tools": [OWN, {"type": "code_execution_20250825", "name": "c"}]}, "code_execution"),
    ("messages", {"tools": [OWN, {"type": "mcp_toolset", "mcp_server_name": "x"}]}, "mcp"),
    ("messages", {"mcp_servers": [{"type": "url", "url": "https://evil.example"}]}, "mcp"),
    ("messages", {"container": "container_1"}, "code_execution"),
    ("responses", {"tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]}, "web_search"),
    ("responses", {"tools": [{"type": "web_search_preview_2025_03_11"}]}, "web_search"),
    ("responses", {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "file_search"),
    ("responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code_execution"),
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}, "mcp"),
    ("responses", {"tools": [{"type": "image_generation"}]}, "image_generation"),
    ("responses", {"tools": [{"type": "computer_use_preview"}]}, "computer"),
    ("chat", {"web_search_options": {}}, "web_search"),
]


@pytest.mark.parametrize(("api", "body", "grant"), STRIPPED, ids=lambda each: str(each)[:60])
def test_a_tool_of_the_provider_is_taken_out_unless_granted(api: Api, body: dict[str, Any], grant: Any):
    """The request goes on without it, and the record can say so."""
    bare, granted = json.loads(json.dumps(body)), json.loads(json.dumps(body))
    assert clean(api, bare, NOTHING)
    assert "evil" not in json.dumps(bare)
    assert grant.split("_")[0] not in json.dumps(bare)
    assert clean(api, granted, ModelPolicy(grants=frozenset({grant}))) == ()
    granted.pop("store", None)
    assert granted == body


@pytest.mark.parametrize(
    "tool",
    [
        OWN,
        {"type": "custom", **OWN},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "edit"},
        {"type": "memory_20250818", "name": "memory"},
    ],
    ids=str,
)
def test_tools_that_the_client_carries_out_stay(tool: dict[str, Any]):
    """They work inside."""
    body = {"tools": [tool]}
    assert clean("messages", body, NOTHING) == ()
    assert body == {"tools": [tool]}


@pytest.mark.parametrize(
    ("environment", "stays"),
    [({"type": "local"}, True), ({"type": "container_auto"}, False), ("local", False), (None, False)],
    ids=str,
)
def test_a_shell_stays_only_where_the_client_carries_it_out(environment: Any, stays: bool):
    """Otherwise its commands run in a container of the provider."""
    tool = {"type": "shell", "environment": environment}
    body: dict[str, Any] = {"tools": [OWN | {"type": "function"}, tool]}
    clean("responses", body, NOTHING)
    assert (tool in body["tools"]) is stays


@pytest.mark.parametrize("kind", ["of_tomorrow", "web_searching", "WEB_SEARCH", "", None, 5, ["bash"]])
def test_a_tool_of_an_unknown_kind_is_taken_out(kind: Any):
    """What is not known may be anything."""
    body: dict[str, Any] = {"tools": [{"type": kind}], "tool_choice": {"type": "auto"}}
    clean("messages", body, NOTHING)
    assert body == {}


def test_a_choice_of_a_tool_that_is_gone_goes_too():
    """The API would refuse the request otherwise."""
    body = {
        "tools": [OWN, {"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"name": "web_search"},
    }
    clean("messages", body, NOTHING)
    assert body == {"tools": [OWN]}


def test_unknown_fields_are_taken_out():
    """Also those that change what an answer costs."""
    body = {"model": "m", "speed": "fast", "service_tier": "priority", "of_tomorrow": {"x": 1}}
    assert set(clean("messages", body, NOTHING)) == {"speed", "service_tier", "of_tomorrow"}
    assert body == {"model": "m"}


@pytest.mark.parametrize(
    "field",
    [{"background": True}, {"previous_response_id": "r"}, {"conversation": "c"}, {"prompt": {"id": "p"}}],
    ids=str,
)
def test_what_the_provider_would_keep_is_refused(field: dict[str, Any]):
    """Without it the request would mean something else."""
    with pytest.raises(Rejected, match="not granted"):
        clean("responses", {"model": "m", **field}, NOTHING)


def test_nothing_is_stored():
    """Whatever the client says."""
    body = {"model": "m", "store": True}
    clean("responses", body, NOTHING)
    assert body["store"] is False


def content(block: dict[str, Any]) -> dict[str, Any]:
    """A body with a block in the result of a tool."""
    return {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [block]}]}]}


POINTING: list[tuple[Api, dict[str, Any]]] = [
    (
        "messages",
        content({"type": "image", "source": {"type": "url", "url": "https://evil.example/?stolen"}}),
    ),
    ("messages", content({"type": "document", "source": {"type": "file", "file_id": "f"}})),
    ("messages", content({"type": "container_upload", "file_id": "f"})),
    ("messages", {"system": [{"type": "text", "source": {"type": "url"}}]}),
    ("chat", content({"type": "image_url", "image_url": {"url": "https://evil.example"}})),
    ("chat", content({"type": "file", "file": {"file_id": "f"}})),
    (
        "responses",
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://e"}]}]},
    ),
    ("responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://e"}]}]}),
    ("responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
    ("messages", content({"type": "image", "source": {"type": "URL", "url": "https://evil.example"}})),
    ("messages", content({"type": "image", "source": {"url": "https://evil.example"}})),
    ("chat", content({"type": "video_url", "video_url": {"url": "https://evil.example"}})),
    ("chat", content({"type": "audio_url", "audio_url": "https://evil.example"})),
    ("chat", {"prediction": {"content": [{"type": "image_url", "image_url": {"url": "http://e"}}]}}),
    ("responses", {"instructions": [{"content": [{"type": "input_image", "image_url": "http://e"}]}]}),
    ("responses", {"input": [{"type": "item_reference", "id": "msg_of_another_run"}]}),
]


@pytest.mark.parametrize(("api", "body"), POINTING, ids=lambda each: str(each)[:80])
def test_content_that_the_provider_would_fetch_is_refused(api: Api, body: dict[str, Any]):
    """An address is a way out: it can carry what was read inside."""
    encoded = json.dumps(body, separators=(",", ":")).encode()
    with pytest.raises(Rejected, match="base64"):
        check_pointers(api, encoded, body, NOTHING)
    check_pointers(api, encoded, body, ModelPolicy(grants=frozenset({"urls", "files"})))


@pytest.mark.parametrize("word", ["Code-Execution-2025-05-22", "MCP-client-2025-04-04", "OAuth-2025-04-20"])
def test_a_beta_is_known_in_any_letters(word: str):
    """The API may not care how they are written."""
    assert betas(word, NOTHING) == ""


def test_content_itself_and_arguments_of_tools_pass():
    """They are what they are."""
    body = {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "input": {"source": {"type": "url"}}}]},
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x"}}]},
        ]
    }
    encoded = json.dumps(body, separators=(",", ":")).encode()
    check_pointers("messages", encoded, body, NOTHING)
    assert b'"source"' in encoded


@pytest.mark.parametrize(
    ("models", "name", "is_allowed"),
    [
        ((), "anything", True),
        (("claude-sonnet-5",), "claude-sonnet-5", True),
        (("claude-sonnet-5",), "claude-sonnet-5-5", False),
        (("claude-haiku-*",), "claude-haiku-5-5", True),
        (("claude-haiku-*",), "claude-opus-5", False),
        ((), "gpt-5-search-api", False),
        ((), "o4-mini-deep-research", False),
        ((), "", False),
        ((), None, False),
    ],
)
def test_only_allowed_models_may_be_asked(models: tuple[str, ...], name: Any, is_allowed: bool):
    """By name or by beginning; never one that searches by itself."""
    policy = ModelPolicy(models=models)
    if is_allowed:
        assert policy.check_model(name) == name
    else:
        with pytest.raises(Rejected):
            policy.check_model(name)


def test_headers_switch_on_nothing_that_is_not_granted():
    """Nor what belongs to another credential."""
    said = "mcp-client-2025-04-04, oauth-2025-04-20,interleaved-thinking-2025-05-14,code-execution-2025-08-25"
    assert betas(said, NOTHING) == "interleaved-thinking-2025-05-14"
    assert "mcp-client" in betas(said, ModelPolicy(grants=frozenset({"mcp"})))
