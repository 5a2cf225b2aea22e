from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.model.failure import FailureKind, RetryPolicy, classify_failure, retry_after_s
from ringfence.model.stream import ApiError

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], expected: float | None):
    """Seconds, milliseconds and HTTP dates; nonsense counts as nothing said."""
    assert retry_after_s(headers, NOW) == expected


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (302, "", "refused"),
        (400, "bad", "refused"),
        (400, "prompt is too long: 5 tokens > 4 maximum", "context"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", "context"),
        (401, "", "authentication"),
        (402, "", "authentication"),
        (403, "", "authentication"),
        (404, "", "refused"),
        (408, "", "transient"),
        (409, "", "transient"),
        (413, "", "refused"),
        (429, "", "transient"),
        (500, "", "transient"),
        (529, "", "transient"),
    ],
)
def test_every_status_has_its_meaning(status: int, message: str, kind: FailureKind):
    """One table says what to do next."""
    failure = classify_failure(ApiError(status, None, message), NOW)
    assert failure is not None
    assert (failure.kind, failure.status) == (kind, status)


def test_what_is_not_about_the_model_is_not_classified():
    """A bug of ours is not retried as if it were the weather."""
    assert classify_failure(RuntimeError("bug"), NOW) is None


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_grow_but_not_beyond_the_limit(failed: int, chance: float):
    """Each wait is between half and all of the doubled one, and bounded."""
    policy = RetryPolicy(backoff_s=0.5, backoff_limit_s=30.0)
    wait = policy.wait_s(failed, retry_after_s=None, jitter=lambda: chance)
    full = min(0.5 * 2.0 ** min(failed - 1, 40), 30.0)
    assert full / 2 <= wait <= full


def test_what_the_server_asks_for_is_kept_to_exactly():
    """No jitter and no limit of ours changes a `retry-after`."""
    assert RetryPolicy().wait_s(1, retry_after_s=45.0, jitter=lambda: 0.9) == 45.0
