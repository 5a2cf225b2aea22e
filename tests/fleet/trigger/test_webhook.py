"""Requests to a webhook: signatures, refusals, and how bodies are read."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fleet.signing import sign

from ringfence.fleet.trigger.payload import WebhookRefused, read_payload
from ringfence.fleet.trigger.webhook import LIMIT_BYTES, Delivery, Style, receive, refuse_length

SECRET, OTHER = b"It's a Secret to Everybody", b"another"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BODY = b'{"issue": {"title": "red"}}'
GITHUB: Style = "github"
TIMED: Style = "stripe"
JSON_TYPE = ("Content-Type", "application/json")


def _github(body: bytes = BODY, secret: bytes = SECRET, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [("x-hub-signature-256", sign(secret, body)), JSON_TYPE, *more]


def _timed(at: datetime, body: bytes = BODY, secret: bytes = SECRET) -> list[tuple[str, str]]:
    return [("STRIPE-SIGNATURE", sign(secret, body, at=at)), JSON_TYPE]


def _refusal(style: Style, headers: list[tuple[str, str]], body: bytes = BODY) -> WebhookRefused:
    with pytest.raises(WebhookRefused) as refused:
        receive(SECRET, style, headers, body, now=NOW)
    assert SECRET.decode() not in str(refused.value)
    return refused.value


def test_the_example_of_githubs_documentation():
    """The signature scheme is GitHub's, by the example in its documentation."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    delivery = receive(SECRET, GITHUB, [("X-Hub-Signature-256", signature)], b"Hello, World!")
    assert delivery.payload == "Hello, World!"


@pytest.mark.parametrize("seconds", [-300, -1, 0, 300])
def test_a_signed_time_within_the_window_is_taken(seconds):
    """A signed request is accepted up to five minutes before or after its time."""
    assert receive(
        SECRET, TIMED, _timed(NOW - timedelta(seconds=seconds)), BODY, now=NOW
    ).payload == json.loads(BODY)


def test_one_of_several_signatures_is_enough():
    """One valid signature of several is enough, beside other secrets and unknown versions."""
    good = sign(SECRET, BODY, at=NOW)
    header = good.replace(",v1=", f",v0=xyz,v1={'0' * 64},v1=")
    assert receive(SECRET, TIMED, [("Stripe-Signature", header), JSON_TYPE], BODY, now=NOW).payload


@pytest.mark.parametrize(
    ("style", "headers", "status", "reason"),
    [
        (GITHUB, [], 401, "there is no signature; send it in the header X-Hub-Signature-256"),
        (TIMED, [], 401, "in the header Stripe-Signature"),
        (GITHUB, _github(b"other body"), 401, "does not match this body"),
        (GITHUB, _github(secret=OTHER), 401, "does not match this body"),
        (GITHUB, [*_github(), *_github()], 400, "occurs 2 times"),
        (GITHUB, [("X-Hub-Signature-256", "sha1=00")], 400, "must be 'sha256='"),
        (GITHUB, [("X-Hub-Signature-256", "sha256=" + "é" * 64)], 400, "64 hexadecimal"),
        (GITHUB, [("X-Hub-Signature-256", "x" * 5000)], 400, "longer than 4096"),
        (TIMED, _timed(NOW - timedelta(seconds=301)), 401, "301 s old; 300 s are allowed"),
        (TIMED, _timed(NOW + timedelta(days=400)), 401, "s ahead"),
        (TIMED, [("Stripe-Signature", f"v1={'0' * 64}")], 400, "must be 't="),
        (TIMED, [("Stripe-Signature", f"t=1,t=2,v1={'0' * 64}")], 400, "must be 't="),
        (TIMED, [("Stripe-Signature", "t=1" + f",v1={'0' * 64}" * 17)], 400, "must be 't="),
        (TIMED, [("Stripe-Signature", f"t={'9' * 13},v1={'0' * 64}")], 400, "must be 't="),
        (GITHUB, [*_github()[:1], ("Content-Type", "image/png")], 415, "'image/png' is not supported"),
        (GITHUB, [*_github()[:1], ("Content-Type", "text/plain; charset=utf-16")], 415, "charset 'utf-16'"),
    ],
)
def test_what_is_refused(style, headers, status, reason):
    """Each refusal has its status and says what to send."""
    refusal = _refusal(style, headers)
    assert refusal.status == status
    assert reason in refusal.reason


def test_a_time_cannot_be_changed():
    """The time is signed too: an old signature with a new time is refused."""
    old = sign(SECRET, BODY, at=NOW - timedelta(hours=1))
    renewed = old.replace(old.partition(",")[0], f"t={int(NOW.timestamp())}")
    assert _refusal(TIMED, [("Stripe-Signature", renewed), JSON_TYPE]).status == 401


def test_bodies_are_bounded():
    """A body over the limit is refused, by its announced length as well as by its actual length."""
    with pytest.raises(WebhookRefused) as refused:
        refuse_length([("Content-Length", str(LIMIT_BYTES + 1))])
    assert refused.value.status == 413
    assert _refusal(GITHUB, _github(), b"x" * (LIMIT_BYTES + 1)).status == 413
    refuse_length([("Content-Length", str(LIMIT_BYTES))])
    with pytest.raises(WebhookRefused) as refused:
        refuse_length([("Content-Length", "-1")])
    assert refused.value.status == 400


def test_a_webhook_without_a_secret_is_none():
    """A webhook without a secret accepts no signature."""
    with pytest.raises(ValueError, match="needs a secret"):
        receive(b"", GITHUB, _github(secret=b""), BODY)


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        (b'{"a": [1, null]}', "application/json; charset=UTF-8", {"a": [1, None]}),
        (b"[1]", "application/vnd.github+json", [1]),
        (b"a=1&b=&a=2", "application/x-www-form-urlencoded", {"a": ["1", "2"], "b": ""}),
        (b"payload=%7B%22a%22%3A1%7D", "application/x-www-form-urlencoded", {"a": 1}),
        ("grün".encode(), "text/markdown", "grün"),
        (b"", None, ""),
    ],
)
def test_payloads(body, kind, value):
    """JSON, forms, JSON in a form, and text become plain values."""
    assert read_payload(body, kind) == value


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"{", "application/json", "not JSON"),
        (b"NaN", "application/json", "NaN is not a number of JSON"),
        (b"[" * 100_000, "application/json", "not JSON: it is nested too deep"),
        (b"[" * 65 + b"]" * 65, "application/json", "nested more than 64 deep"),
        (b"9" * 5000, "application/json", "not JSON"),
        (b"\xff", "text/plain", "not UTF-8, at byte 0"),
        (b"&".join(b"a=1" for _ in range(1001)), "application/x-www-form-urlencoded", "at most 1000 fields"),
        (b"a=%ff", "application/x-www-form-urlencoded", "not a form"),
        (b"payload=%7B", "application/x-www-form-urlencoded", "not JSON"),
    ],
)
def test_bodies_that_are_not_what_they_say(body, kind, reason):
    """A body that does not match its type is refused with status 400."""
    with pytest.raises(WebhookRefused) as refused:
        read_payload(body, kind)
    assert refused.value.status == 400
    assert reason in refused.value.reason
    assert len(refused.value.reason) < 200


@settings(max_examples=examples(200))
@given(
    st.binary(max_size=200),
    st.one_of(
        st.none(),
        st.text(max_size=60),
        st.sampled_from(
            ["application/json", "application/x-www-form-urlencoded", "text/plain", "a/b;;=;charset"]
        ),
    ),
)
def test_any_body_of_any_type_is_read_or_refused(body, kind):
    """Any body of any type becomes a value, or is refused with a status."""
    status, value = 200, None
    try:
        value = read_payload(body, kind)
    except WebhookRefused as refused:
        status = refused.status
    assert status in {200, 400, 415}
    assert json.loads(json.dumps(value)) == value


@settings(max_examples=examples(200))
@given(st.sampled_from([GITHUB, TIMED]), st.text(max_size=120), st.binary(max_size=50))
def test_no_made_up_signature_is_taken(style, signature, body):
    """No header passes as a signature without the secret."""
    name = "X-Hub-Signature-256" if style == GITHUB else "Stripe-Signature"
    assert _refusal(style, [(name, signature)], body).status in {400, 401}


@settings(max_examples=examples(100))
@given(
    st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=20), min_size=2, max_size=5).filter(
        lambda fields: (
            not any("\ud800" <= letter <= "\udfff" for text in [*fields, *fields.values()] for letter in text)
        )
    ),
    st.integers(-300, 300),
)
def test_what_is_signed_arrives(fields, seconds):
    """Any form that is signed in time is accepted, with the fields that were sent."""
    body = urlencode(fields).encode()
    headers = [
        *_timed(NOW + timedelta(seconds=seconds), body)[:1],
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    found = receive(SECRET, TIMED, headers, body, now=NOW)
    signed = f"{int(NOW.timestamp()) + seconds}.".encode() + body
    assert found == Delivery(hashlib.sha256(signed).hexdigest(), fields)


def test_two_signed_times_are_two_deliveries():
    """The same body at another signed time is another delivery; without a time the body alone counts."""
    later = NOW + timedelta(seconds=1)
    hashes = {
        receive(
            SECRET, TIMED, [("Stripe-Signature", sign(SECRET, BODY, at=at)), JSON_TYPE], BODY, now=NOW
        ).signed_hash
        for at in (NOW, later, NOW)
    }
    assert len(hashes) == 2
