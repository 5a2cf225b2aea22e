"""What looks like a secret is taken out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.secret import redact_shapes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key sk-ant-api03-" + "A1_-" * 10 + " end", "key X end"),
        ("sk-proj-" + "a" * 40, "X"),
        ("ghp_" + "a" * 36 + ".", "X."),
        ("AKIA" + "A" * 16, "X"),
        ("eyJ" + "a" * 20 + ".eyJ" + "b" * 20 + "." + "c" * 43, "X"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", "X\nrest"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "X"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer X"),
        ('"x-api-key": "abcdefgh12345678"', '"x-api-key": "X"'),
        ("https://user:pass-word@example.com/x", "https://user:X@example.com/x"),
    ],
    ids=["anthropic", "openai", "github", "aws", "jwt", "pem", "pem-cut", "bearer", "header", "url"],
)
def test_what_tells_that_it_is_a_secret_is_replaced(text: str, expected: str) -> None:
    """By the beginning that its issuer gives it, or the place where it stands."""
    assert redact_shapes(text, "X") == expected


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn and task-force",
        "https://example.com/a@b",
        "mailto:a@b",
        "authorization is needed",
        "eyJ",
        "hf_x",
    ],
)
def test_innocent_text_stays(text: str) -> None:
    """Words that only begin alike are left alone."""
    assert redact_shapes(text, "X") == text


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    """No text is an error, and one without marks comes back as it is."""
    assert isinstance(redact_shapes(text, "X"), str)
