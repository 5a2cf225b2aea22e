"""Programs inside ask models by a gateway that holds the credential, and bounds what they use."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Ended, Product, says
from tests.promises.servers import Server, serving

KEY = "sk-ant-api03-a-real-key-of-the-user"
ASK = """
import json, os, sys, urllib.error, urllib.request
path, body = sys.argv[1], json.loads(sys.argv[2])
base, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"]
if path.startswith("/openai"):
    path, base, key = path[7:], os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), os.environ["OPENAI_API_KEY"]
headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
headers |= {"x-api-key": key} if "/messages" in path else {"authorization": "Bearer " + key}
request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
try:
    print(200, urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
REFUSAL = b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'
MESSAGES = {"model": "scripted", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


def ask(
    product: Product,
    *options: str,
    path: str = "/v1/messages",
    body: dict[str, Any] | None = None,
    **variables: Any,
) -> Ended:
    """Have a program inside make a request."""
    words = ("python3", "-c", ASK, path, json.dumps(body or MESSAGES))
    return product("exec", *options, "--", *words, **variables)


@pytest.fixture
def scripted(product: Product) -> Product:
    """A product whose sandboxes may ask a scripted model."""
    model = product.script(says("hello from a script"), says("again"))
    product.configure(product.settings, run={"model": model}, egress={"allow": ["model"]})
    return product


@pytest.fixture
def upstream() -> Iterator[Server]:
    """A server in the place of a model's API."""
    answer = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": []}
    usage = {"stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
    with serving(
        body=json.dumps({**answer, **usage}).encode(), headers={"Content-Type": "application/json"}
    ) as server:
        yield server


def test_a_program_inside_asks(scripted: Product, fence: Fence) -> None:
    """With the grant `model` a program inside is answered, and each exchange is recorded with its tokens and cost."""
    ended = ask(scripted, *fence)
    assert ended.out.startswith("200 ")
    assert "hello from a script" in ended.out
    (exchange,) = scripted.recorded("model.exchanged")
    assert exchange["usage"]["output_tokens"] > 0
    assert exchange["cost_usd"] > 0


@pytest.mark.parametrize("path", ["/openai/v1/responses", "/openai/v1/chat/completions"])
def test_openais_apis(scripted: Product, path: str) -> None:
    """Programs that speak OpenAI's APIs are answered, too."""
    body: dict[str, Any] = {"model": "scripted"}
    body |= {"input": "hello"} if "responses" in path else {"messages": MESSAGES["messages"]}
    ended = ask(scripted, path=path, body=body)
    assert ended.out.startswith("200 "), ended
    assert "hello from a script" in ended.out


def test_no_model_without_a_grant(product: Product) -> None:
    """Without the grant no variable inside names a model's API."""
    assert product.shell("echo [$ANTHROPIC_BASE_URL$OPENAI_BASE_URL$ANTHROPIC_API_KEY]").out == "[]\n"


def test_the_key_stays_outside(product: Product, upstream: Server) -> None:
    """The credential is added on the host's side: it is nowhere inside, and reaches the API alone."""
    given = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": upstream.url}
    body = {**MESSAGES, "model": "claude-sonnet-5-5"}
    assert ask(product, "--allow", "model", body=body, **given).out.startswith("200 ")
    (got,) = upstream.got
    assert got.headers["x-api-key"] == KEY
    look = "env; cat /proc/*/environ /proc/*/cmdline; grep -rs a-real-key $HOME /tmp /ringfence /run . ; true"
    ended = product("exec", "--allow", "model", "--", "sh", "-c", look, **given)  # type: ignore[arg-type]
    assert KEY not in ended.out
    assert KEY not in "".join(file.read_text() for file in product.state.rglob("*.jsonl"))


def test_only_named_models(scripted: Product) -> None:
    """A model that `egress.models` does not name is refused, and recorded."""
    sections: dict[str, Any] = json.loads(scripted.settings.read_text())
    sections["egress"]["models"] = ["claude-haiku-*"]
    scripted.configure(scripted.settings, **sections)
    assert ask(scripted).out.startswith("403 ")
    assert scripted.recorded("model.asked")[0]["allowed"] is False


def test_tokens_are_bounded(scripted: Product) -> None:
    """Who asks beyond the run's tokens is refused, and the run ends with the code of a limit."""
    program = f"import sys; sys.argv = ['', '/v1/messages', {json.dumps(json.dumps(MESSAGES))}]\n{ASK * 3}"
    ended = scripted("exec", "--max-tokens", "15", "--", "python3", "-c", program)
    assert ended.ends_as("limit")
    assert not ended.out.splitlines()[-1].startswith("200 ")


@pytest.mark.parametrize("path", ["/v1/files", "/v1/organizations/api_keys", "/admin", "/v1/../x"])
def test_other_calls(scripted: Product, path: str) -> None:
    """Calls of the API other than those for answers are refused."""
    assert not ask(scripted, path=path).out.startswith("200 ")


def test_tools_of_the_provider(product: Product, upstream: Server) -> None:
    """Tools that run on the provider's side are taken out of requests, unless they are granted."""
    body = {
        **MESSAGES,
        "model": "claude-sonnet-5-5",
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }
    given = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": upstream.url}
    ask(product, "--allow", "model", body=body, **given)
    assert not any("web_search" in got.body.decode() for got in upstream.got)
    assert product.recorded("model.asked")[0]["stripped"] or not product.recorded("model.asked")[0]["allowed"]


def test_no_credential(product: Product) -> None:
    """Where there is no credential, a program that asks is told so."""
    ended = ask(product, "--allow", "model")
    assert not ended.out.startswith("200 ")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_kinds_of_credentials(product: Product, name: str) -> None:
    """A key, a gateway's token and a subscription's token reach the API in the header that each belongs to."""
    value = f"sk-ant-{'oat01' if 'OAUTH' in name else 'api03'}-value-of-{name.lower()}"
    with serving(status=400, body=REFUSAL) as server:
        product.run("claude-sonnet-5-5", **{name: value, "ANTHROPIC_BASE_URL": server.url})
    assert server.got
    headers = server.got[-1].headers
    sent = headers.get("x-api-key") if name.endswith("KEY") else headers.get("authorization")
    assert sent == (value if name.endswith("KEY") else f"Bearer {value}")


def test_a_credential_that_is_refused(product: Product) -> None:
    """A credential that the API refuses ends a run with 77 before an agent is set to work."""
    with serving(
        status=401, body=b'{"type":"error","error":{"type":"authentication_error","message":"no"}}'
    ) as server:
        given = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
        ended = product.run("claude-sonnet-5-5", **given)
    assert ended.ends_as("authentication")
    assert product.recorded("tool.called") == []
    assert KEY not in ended.out + ended.err
