"""Cron expressions: their due times in any time zone, and which expressions are refused."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fleet.schedule import wall

from ringfence.errors import UsageError
from ringfence.fleet.schedule.base import due_time_id
from ringfence.fleet.schedule.cron import CronSchedule

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
    ("UTC", datetime(2028, 2, 29, tzinfo=UTC)),
]


def _fields(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    # A step over a single value is read as a step from there on, so ranges have at least two values.
    span = st.tuples(st.integers(least, most - 1), number).map(
        lambda pair: f"{pair[0]}-{max(pair[0] + 1, pair[1])}"
    )
    term = st.one_of(
        number.map(str), span, st.tuples(span, st.integers(1, 7)).map(lambda x: f"{x[0]}/{x[1]}")
    )
    starred = st.one_of(st.just("*"), st.integers(1, 23).map(lambda step: f"*/{step}"))
    return st.one_of(st.just("*"), starred, st.lists(term, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    _fields(0, 59), _fields(0, 23), st.one_of(st.just("*"), _fields(1, 31)), st.just("*"), _fields(0, 7)
).map(" ".join)


def _local(expression: str, name: str, start: str, count: int) -> list[str]:
    schedule = CronSchedule(expression, name)
    at, zone = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(name)), ZoneInfo(name)
    found = []
    for _ in range(count):
        following = schedule.next_after(at)
        assert following is not None
        at = following
        found.append(at.astimezone(zone).strftime("%d %H:%M %z"))
    return found


@settings(max_examples=examples(60), deadline=None)
@given(EXPRESSIONS, st.sampled_from(CHANGES), st.integers(-86400, 43200), st.integers(0, 999_999))
def test_slots_are_those_that_looking_at_every_minute_finds(expression, change, seconds, fraction):
    """Around clock changes the due times equal those of a slow reference that checks every minute."""
    name, moment = change
    start = moment + timedelta(seconds=seconds, microseconds=fraction)
    end = start + timedelta(days=1)
    try:
        schedule = CronSchedule(expression, name)
    except UsageError:
        assert wall.slots(expression, ZoneInfo(name), start, end) == []
        return
    expected = wall.slots(expression, ZoneInfo(name), start, end)
    assert schedule.between(start, end, 300) == expected[:300]


@settings(max_examples=examples(60), deadline=None)
@given(EXPRESSIONS, st.sampled_from(CHANGES), st.integers(-86400, 86400), st.integers(0, 7200))
def test_a_slot_is_the_same_from_wherever_it_is_asked_for(expression, change, seconds, later):
    """The due times do not depend on the moment from which they are computed."""
    name, moment = change
    try:
        schedule = CronSchedule(expression, name)
    except UsageError:
        return
    start = moment + timedelta(seconds=seconds)
    following = schedule.next_after(start)
    assert following is not None
    assert following > start
    between = start + timedelta(seconds=later)
    expected = following if following > between else schedule.next_after(max(between, following))
    if following > between:
        assert schedule.next_after(between) == expected
    else:
        assert schedule.between(start, between, 10_000)[0] == following


@pytest.mark.parametrize(
    ("expression", "name", "start", "slots"),
    [
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["01 01:30 -0400", "02 01:30 -0500"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["08 03:00 -0400", "09 02:30 -0400"]),
        ("30 * * * *", "America/New_York", "2026-11-01T00:45", ["01 01:30 -0400", "01 01:30 -0500"]),
        ("30 * * * *", "America/New_York", "2026-03-08T01:00", ["08 01:30 -0500", "08 03:30 -0400"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["25 02:30 +0200", "26 02:30 +0100"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["29 03:00 +0200", "30 02:30 +0200"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", ["04 02:30 +1100", "05 02:15 +1100"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", ["05 01:45 +1100", "06 01:45 +1030"]),
        ("*/10 3 * * *", "Australia/Lord_Howe", "2026-10-04T01:50", ["04 03:00 +1100", "04 03:10 +1100"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T13:00", ["31 00:00 +1400", "31 12:00 +1400"]),
        ("0 */12 * * *", "Pacific/Apia", "2011-12-29T01:00", ["29 12:00 -1000", "31 00:00 +1400"]),
        ("*/30 0 4 11 *", "America/Sao_Paulo", "2018-11-03T12:00", ["04 00:00 -0300", "04 00:30 -0300"]),
    ],
)
def test_changes_of_the_clock(expression, name, start, slots):
    """At clock changes a fixed time of day is due once a day, and a repeated one follows the wall clock."""
    assert _local(expression, name, start, len(slots)) == slots


@pytest.mark.parametrize(
    ("expression", "start", "slot"),
    [
        ("0 0 29 2 *", "2026-01-01", "2028-02-29T00:00:00Z"),
        ("0 0 29 2 *", "2096-03-01", "2104-02-29T00:00:00Z"),
        ("0 0 L 2 *", "2028-01-01", "2028-02-29T00:00:00Z"),
        ("0 0 * 2 MON#5", "2026-01-01", "2044-02-29T00:00:00Z"),
        ("0 0 31 * *", "2026-01-31", "2026-03-31T00:00:00Z"),
        ("0 9 * * mon-fri", "2026-01-02T10:00", "2026-01-05T09:00:00Z"),
        ("0 0 13 * FRI", "2026-01-01", "2026-01-02T00:00:00Z"),
        ("@yearly", "2026-06-01", "2027-01-01T00:00:00Z"),
        ("@annually", "2026-06-01", "2027-01-01T00:00:00Z"),
        ("@Monthly", "2026-06-01", "2026-07-01T00:00:00Z"),
        ("@weekly", "2026-06-01", "2026-06-07T00:00:00Z"),
        ("@daily", "2026-06-01", "2026-06-02T00:00:00Z"),
        ("@midnight", "2026-06-01", "2026-06-02T00:00:00Z"),
        ("@hourly", "2026-06-01", "2026-06-01T01:00:00Z"),
    ],
)
def test_calendars(expression, start, slot):
    """Leap days, last days, weekdays and aliases are due when the calendar has them."""
    found = CronSchedule(expression, "UTC").next_after(datetime.fromisoformat(start).replace(tzinfo=UTC))
    assert found is not None
    assert due_time_id(found) == slot


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("0 0 30 2 *", "day 30 does not exist: February has at most 29 days"),
        ("0 0 31 4,6 *", "day 31 does not exist: April, June has at most 30 days"),
        ("0 0 */10 4 MON#5", "no day of the next fifty years"),
        ("61 * * * *", "'61' is not a valid minute; write 0 to 59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of the month"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * MOO", "'MOO' is not a valid day of the week"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("9" * 5000 + " * * * *", "has 5 fields"),
        ("* * * * * *", "has 6 fields; write five"),
        ("", "has 0 fields"),
        ("@reboot", "`every: 1h`"),
        ("@fortnightly", "write five fields or one of @yearly"),
    ],
)
def test_what_never_happens_or_says_nothing_is_refused(expression, why):
    """A refusal shows the expression and says which part is wrong, and why."""
    with pytest.raises(UsageError) as refused:
        CronSchedule(expression, "UTC")
    assert why in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.text("0123456789*/,-#LW @MONJA²", max_size=40),
        st.lists(st.text("0123456789*/,-#LW²", min_size=1, max_size=6), min_size=5, max_size=5).map(" ".join),
    )
)
def test_any_text_is_a_schedule_or_refused(text):
    """Any text is either refused, or a schedule with a next due time."""
    try:
        schedule = CronSchedule(text, "UTC")
    except UsageError:
        return
    assert schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("../../etc/passwd", "write one such as"),
        ("Europe", "Europe/"),
        ("", "write one such as"),
    ],
)
def test_an_unknown_zone_is_refused_with_near_names(name, near):
    """The error for an unknown time zone suggests similar names."""
    with pytest.raises(UsageError, match="there is no time zone") as refused:
        CronSchedule("@daily", name)
    assert near in str(refused.value)


def test_without_a_zone_it_is_the_machines(monkeypatch):
    """A schedule without a time zone uses the machine's local time."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    slot = CronSchedule("0 12 * * *").next_after(datetime(2026, 1, 1, tzinfo=UTC))
    assert slot == datetime(2026, 1, 1, 6, 30, tzinfo=UTC)
