"""The scripted model's server: three APIs by HTTP, for the tests of whoever uses the product."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.promises.product import PYTHON, Product

SCRIPT = {
    "turns": [
        {"text": "hello", "tools": [{"name": "shell", "input": {"command": "ls"}}]},
        {"expect": {"last_user_text": "go on"}, "text": "bye", "usage": {"input_tokens": 9, "output_tokens": 4}},
    ]
}  # fmt: skip
ASKED = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def serve(make_product: Callable[[], Product]) -> Iterator[Callable[[Any], str]]:
    """Start a server of a script; its base URL."""
    product = make_product()
    started: list[subprocess.Popen[str]] = []

    def begin(script: Any) -> str:
        words: list[str] = []
        if script is not None:
            file = product.place / f"{len(started)}.yaml"
            file.write_text(json.dumps(script))
            words = [str(file)]
        command = [PYTHON, "-P", "-m", "ringfence.testing.scripted_model", *words]
        process = subprocess.Popen(command, env=product.environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().split()[-1].rstrip("/")

    yield begin
    for process in started:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def ask(url: str, path: str, body: Any, key: str | None = "any") -> tuple[int, str]:
    """Ask it; status and body."""
    headers = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
    if key is not None:
        headers |= {"x-api-key": key, "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def messages(text: str = "hi", **more: Any) -> dict[str, Any]:
    """A request to the Messages API."""
    return {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": text}], **more}


def test_messages(serve: Callable[[Any], str]) -> None:
    """A request to `/v1/messages` is answered by the script's turn, with its text and its calls."""
    status, body = ask(serve(SCRIPT), "/v1/messages", messages())
    found = json.loads(body)
    assert status == 200
    assert [block["type"] for block in found["content"]] == ["text", "tool_use"]
    assert (found["content"][0]["text"], found["stop_reason"]) == ("hello", "tool_use")


def test_streams(serve: Callable[[Any], str]) -> None:
    """A request that is streamed gets server-sent events, from `message_start` to `message_stop`."""
    _, body = ask(serve(SCRIPT), "/v1/messages", messages(stream=True))
    events = [line.partition(": ")[2] for line in body.splitlines() if line.startswith("event:")]
    assert (events[0], events[-1]) == ("message_start", "message_stop")


def test_responses(serve: Callable[[Any], str]) -> None:
    """A request to `/v1/responses` is answered in the form of that API."""
    status, body = ask(serve(SCRIPT), "/v1/responses", {"model": "m", "input": "hi"})
    found = json.loads(body)
    assert status == 200
    assert {item["type"] for item in found["output"]} >= {"message", "function_call"}


def test_chat_completions(serve: Callable[[Any], str]) -> None:
    """A request to `/v1/chat/completions` is answered in the form of that API."""
    status, body = ask(serve(SCRIPT), "/v1/chat/completions", {"model": "m", "messages": ASKED})
    (choice,) = json.loads(body)["choices"]
    assert status == 200
    assert choice["message"]["content"] == "hello"
    assert choice["finish_reason"] == "tool_calls"


def test_turns_in_their_order(serve: Callable[[Any], str]) -> None:
    """Each request takes the next turn, with the usage that the script says; after the last one it is 400."""
    url = serve(SCRIPT)
    ask(url, "/v1/messages", messages())
    found = json.loads(ask(url, "/v1/messages", messages("go on"))[1])
    assert found["usage"]["output_tokens"] == 4
    assert ask(url, "/v1/messages", messages())[0] == 400


def test_expectations(serve: Callable[[Any], str]) -> None:
    """A request that is not as the turn expects is answered 400, and the turn stays."""
    url = serve(SCRIPT)
    ask(url, "/v1/messages", messages())
    assert ask(url, "/v1/messages", messages("stop"))[0] == 400
    assert ask(url, "/v1/messages", messages("go on"))[0] == 200


def test_faults(serve: Callable[[Any], str]) -> None:
    """A turn's error comes as often as it says, with its status, and then its reply."""
    url = serve({"turns": [{"error": {"status": 503, "times": 2}, "text": "now"}]})
    assert [ask(url, "/v1/messages", messages())[0] for _ in range(3)] == [503, 503, 200]


def test_scripts_in_prompts(serve: Callable[[Any], str]) -> None:
    """A server without a script goes by the one that a prompt brings."""
    mark = '<scripted-model>{"turns": [{"text": "as told"}]}</scripted-model>'
    status, body = ask(serve(None), "/v1/messages", messages(f"Do it. {mark}"))
    assert status == 200
    assert json.loads(body)["content"][0]["text"] == "as told"


def test_cases(serve: Callable[[Any], str]) -> None:
    """Several conversations are answered by the first case that fits each, and 400 if none does."""
    cases = [{"when": ["role: a"], "turns": [{"text": "A"}]}, {"when": ["role: b"], "turns": [{"text": "B"}]}]
    url = serve({"cases": cases})
    for role in ("b", "a", "b"):
        found = json.loads(ask(url, "/v1/messages", messages(f"role: {role}"))[1])
        assert found["content"][0]["text"] == role.upper()
    assert ask(url, "/v1/messages", messages("role: c"))[0] == 400


def test_no_credential(serve: Callable[[Any], str]) -> None:
    """A request without any credential is answered 401."""
    assert ask(serve(SCRIPT), "/v1/messages", messages(), key=None)[0] == 401


def test_what_the_real_api_refuses(serve: Callable[[Any], str]) -> None:
    """A request that the real API refuses is refused: one without `max_tokens`, say."""
    body = messages()
    del body["max_tokens"]
    assert ask(serve(SCRIPT), "/v1/messages", body)[0] == 400


def test_other_paths(serve: Callable[[Any], str]) -> None:
    """Tokens are estimated, models are listed, and anything else is 404."""
    url = serve(SCRIPT)
    assert json.loads(ask(url, "/v1/messages/count_tokens", messages())[1])["input_tokens"] > 0
    assert ask(url, "/v1/nothing", {})[0] == 404


@pytest.mark.parametrize(
    ("text", "place"),
    [("turns: []\n", "1:"), ("turns:\n  - {txt: x}\n", "2:6"), ("turns: &a []\n", "1:"), ("- x\n", "1:")],
    ids=["empty", "unknown key", "anchor", "no mapping"],
)
def test_scripts_that_are_wrong(product: Product, text: str, place: str) -> None:
    """A script that is wrong is told with file, line and column, before anything is run."""
    file = product.place / "wrong.yaml"
    file.write_text(text)
    product.run(f"scripted:{file}").fails_as("configuration", f"{file}:{place}")


def test_a_script_that_is_not_there(product: Product) -> None:
    """A script that is not there is told by its name, before anything is run."""
    product.run("scripted:/no/script.yaml").fails_as("usage", "/no/script.yaml")
