"""What a source's bytes mean, and when what they say ends."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import AuthenticationFailed
from ringfence.secret.value import jwt_expiry, parse_value

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def _token(claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{body}.sig"


@given(st.binary(max_size=300))
def test_any_bytes_are_one_line_or_a_clear_error(raw: bytes):
    """Nothing else can come of what a source gives, and the error does not hold it."""
    try:
        text = parse_value(raw, "secret 'X'").text
    except AuthenticationFailed as exc:
        text = str(exc)
    assert text
    assert text.isprintable()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda below: st.lists(below, max_size=3) | st.dictionaries(
                        st.sampled_from(["exp", "claudeAiOauth", "accessToken", "access_token", "expiresAt", "x"]),
                        below, max_size=4), max_leaves=6))  # fmt: skip
def test_any_json_is_read_without_a_fault(document: Any):
    """As claims of a token, and as a credential file."""
    expiry = jwt_expiry(_token(document)) if isinstance(document, dict) else None
    assert expiry is None or expiry.tzinfo is UTC
    try:
        parse_value(json.dumps(document).encode(), "it")
    except AuthenticationFailed:
        return


def test_a_web_token_tells_its_end():
    """By `exp`, as seconds since 1970."""
    assert parse_value(_token({"exp": WHEN.timestamp()}).encode(), "it").expires_at == WHEN


@pytest.mark.parametrize("exp", [True, "soon", -1, 1e300, None, 10**400])
def test_a_senseless_end_is_none(exp: Any):
    """A token is somebody else's text."""
    assert jwt_expiry(_token({"exp": exp})) is None


@pytest.mark.parametrize(
    "document",
    [
        {
            "claudeAiOauth": {
                "accessToken": "t0ken-t0ken",
                "refreshToken": "r",
                "expiresAt": WHEN.timestamp() * 1000,
            }
        },
        {"access_token": "t0ken-t0ken", "refresh_token": "r", "expires_at": WHEN.timestamp()},
        {"access_token": "t0ken-t0ken", "refresh_token": "r", "expiry": "2030-01-02T03:04:05Z"},
    ],
    ids=["claude", "seconds", "iso"],
)
def test_a_credential_file_gives_token_and_end(document: dict[str, Any]):
    """And its refresh token, which nobody may see either."""
    value = parse_value(json.dumps(document).encode(), "it")
    assert (value.text, value.companions, value.expires_at) == ("t0ken-t0ken", ("r",), WHEN)


def test_the_text_of_a_value_does_not_show_it():
    """Neither the secret nor what came beside it."""
    shown = repr(parse_value(b'{"access_token": "hunter2", "refresh_token": "hunter3"}', "it"))
    assert "hunter" not in shown


def test_a_margin_is_reckoned_from_the_end():
    """What has no known end does not end."""
    value = parse_value(_token({"exp": WHEN.timestamp()}).encode(), "it")
    early = WHEN - timedelta(hours=1)
    assert [value.expires_within(timedelta(hours=hours), early) for hours in (0, 1, 2)] == [False, True, True]
    assert not parse_value(b"opaque", "it").expires_within(timedelta(days=9999), early)
