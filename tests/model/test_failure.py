from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ringfence.model.failure import FailureKind, failure_of, retry_after_s, status_failure

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
    failure = status_failure(status, error_type=None, message=message, headers={}, now=NOW)
    assert (failure.kind, failure.status) == (kind, status)


def test_what_is_not_about_the_model_is_not_classified():
    """A bug of ours is not retried as if it were the weather."""
    assert failure_of(RuntimeError("bug"), NOW) is None
