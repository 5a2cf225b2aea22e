"""Which calls there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.gateway.routes import Rejected, Route, find_route
from ringfence.egress.http.rules import Request

VERSION = (("anthropic-version", "1"),)
KNOWN = {
    ("POST", "/v1/messages"): "/v1/messages",
    ("POST", "/v1/messages?beta=true"): "/v1/messages?beta=true",
    ("POST", "/v1/messages/count_tokens"): "/v1/messages/count_tokens",
    ("GET", "/v1/models?limit=5"): "/models?limit=5",
    ("GET", "/v1/models/gpt-5.5"): "/models/gpt-5.5",
    ("POST", "/v1/responses"): "/responses",
    ("POST", "/v1/chat/completions"): "/chat/completions",
}


@pytest.mark.parametrize(("asked", "path"), KNOWN.items(), ids=lambda each: str(each))
def test_a_call_of_the_table_is_passed_on(asked: tuple[str, str], path: str):
    """Its path is below the provider's base URL."""
    assert find_route(Request(*asked)).path == path


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files",
        "/v1/messages/batches",
        "/v1/messages/",
        "/v1//messages",
        "/v1/messages/../files",
        "/v1/%6dessages",
        "/V1/messages",
        "/v1/messages?beta=true&beta=true",
        "/v1/messages?key=value",
        "/v1/messages?beta=%74rue%00",
        "/v1/messages#x",
        "http://api.anthropic.com/v1/messages",
        "/v1/responses/resp_1",
        "/v1/models/../files",
        "/v1/embeddings",
        "/",
        "*",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "HEAD", "OPTIONS"])
def test_every_other_call_is_refused(method: str, target: str):
    """However it is spelled."""
    with pytest.raises(Rejected):
        find_route(Request(method, target, VERSION))


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_refused_or_is_a_path_of_the_table(method: str, rest: str):
    """Nothing that somebody inside made up gets into the path that is asked."""
    try:
        route: Route = find_route(Request(method, f"/v1/{rest}", VERSION))
    except Rejected:
        return
    assert route.path.partition("?")[0].startswith(("/v1/me", "/v1/models", "/models", "/responses", "/chat"))


def test_the_models_of_both_are_told_apart_by_the_version():
    """Only Anthropic's clients say one."""
    routes = [find_route(Request("GET", "/v1/models", version)) for version in (VERSION, ())]
    assert [route.provider for route in routes] == ["anthropic", "openai"]
