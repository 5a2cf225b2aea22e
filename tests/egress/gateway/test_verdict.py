"""What the body of an API's answer says of a request."""

import pytest

from ringfence.egress.gateway.response_reader import verdict_of_body


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"type": "overloaded_error", "message": "m"}}', "overloaded_error"),
        (
            b'{"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "m"}}',
            "rate_limit_exceeded",
        ),
        (b'{"error": {"code": 5, "message": {"of": "a proxy"}}}', "5"),
        (b'{"error": "gone"}', "gone"),
    ],
    ids=["messages", "responses", "other types", "a text"],
)
def test_the_code_of_an_error(body: bytes, error: str):
    """The code of an error is found in the body of every API, also where its other fields are of other types."""
    verdict = verdict_of_body(body)
    assert (verdict.error, verdict.is_complete) == (error, False)


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"[]", b"", b"{"])
def test_what_is_no_json_object_is_no_answer(body: bytes):
    """Such a body counts as no answer, and so as no turn."""
    assert not verdict_of_body(body).is_complete
