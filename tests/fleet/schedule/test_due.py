"""What is due after any pause and any jump of the clock, by policy; and interval schedules."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.fleet.schedule.base import due_time_id
from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.due import CatchUp, find_due
from ringfence.fleet.schedule.interval import IntervalSchedule

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTELY = CronSchedule("* * * * *", "UTC")


@pytest.mark.parametrize(
    ("policy", "late_s", "fired", "dropped"),
    [
        (CatchUp.SKIP, 0.0, [3], 2),
        (CatchUp.SKIP, 0.999, [3], 2),
        (CatchUp.SKIP, 1.0, [], 3),
        (CatchUp.ONCE, 0.0, [3], 2),
        (CatchUp.ONCE, 30.0, [3], 2),
        (CatchUp.ALL, 0.0, [1, 2, 3], 0),
        (CatchUp.ALL, 30.0, [1, 2, 3], 0),
    ],
)
def test_catching_up(policy, late_s, fired, dropped):
    """The policy decides which of three missed due times fire; all three count as handled."""
    now = NOON + timedelta(minutes=3, seconds=late_s)
    found = find_due(MINUTELY, handled=NOON, now=now, catch_up=policy)
    assert found.times == tuple(NOON + timedelta(minutes=minute) for minute in fired)
    assert found.dropped == dropped
    assert found.handled == NOON + timedelta(minutes=3)


@pytest.mark.parametrize("policy", CatchUp)
def test_nothing_is_due_before_its_time(policy):
    """Right before a due time nothing fires, and nothing counts as handled."""
    found = find_due(MINUTELY, handled=NOON, now=NOON + timedelta(seconds=59.999), catch_up=policy)
    assert (found.times, found.handled) == ((), NOON)


def test_all_is_the_newest_hundred():
    """After days of downtime the newest hundred due times fire, and the others are counted."""
    found = find_due(MINUTELY, handled=NOON, now=NOON + timedelta(minutes=750), catch_up=CatchUp.ALL)
    assert len(found.times) == 100
    assert found.times[-1] == NOON + timedelta(minutes=750)
    assert found.dropped == 650


def test_the_count_of_what_is_dropped_is_bounded():
    """The count of dropped due times ends at a thousand."""
    found = find_due(MINUTELY, handled=NOON, now=NOON + timedelta(days=3000), catch_up=CatchUp.ALL)
    assert len(found.times) == 100
    assert found.dropped == 1000


@pytest.mark.parametrize("policy", CatchUp)
def test_a_clock_that_went_back_fires_nothing_twice(policy):
    """Due times that were handled never fire again, however far back the clock goes."""
    for hours in (1, 24, 10_000):
        found = find_due(MINUTELY, handled=NOON, now=NOON - timedelta(hours=hours), catch_up=policy)
        assert (found.times, found.dropped, found.handled) == ((), 0, NOON)


SCHEDULES = st.one_of(
    st.sampled_from(["* * * * *", "*/7 3-5 * * *", "0 0 * * *", "* * 1 1 *"]).map(
        lambda text: CronSchedule(text, "Europe/Berlin")
    ),
    st.builds(
        lambda seconds, ahead: IntervalSchedule(timedelta(seconds=seconds), NOON + timedelta(seconds=ahead)),
        st.floats(1, 90_000).map(lambda seconds: round(seconds, 3)),
        st.integers(-90_000, 90_000),
    ),
)


@settings(max_examples=examples(80), deadline=None)
@given(SCHEDULES, st.sampled_from(CatchUp), st.lists(st.integers(-90_000, 200_000), min_size=1, max_size=8))
def test_no_slot_fires_twice_and_none_is_lost(schedule, policy, moves):
    """Over any movement of the clock each due time fires or counts as dropped, once, and in order."""
    handled, now, dropped = NOON, NOON, 0
    fired: list[datetime] = []
    for move in moves:
        now += timedelta(seconds=move)
        found = find_due(schedule, handled=handled, now=now, catch_up=policy)
        assert found.handled >= handled
        assert len(found.times) <= 100
        fired += found.times
        dropped += found.dropped
        handled = found.handled
        if found.dropped == 1000:  # there may be more
            return
    slots = schedule.between(NOON, handled, 100_000)
    assert fired == sorted(set(fired) & set(slots))
    assert len(fired) + dropped == len(slots)


@settings(max_examples=examples(100))
@given(
    st.integers(1_000, 10**9),
    st.integers(-(10**9), 10**9),
    st.integers(-(10**9), 10**9),
    st.integers(0, 10**8),
)
def test_slots_of_an_interval_are_its_multiples(milliseconds, anchor_s, start_s, length_s):
    """The next due time is the least `anchor + n * interval` after the moment, and counting agrees with listing."""
    epoch, interval = datetime(2026, 1, 1, tzinfo=UTC), timedelta(milliseconds=milliseconds)
    anchor, start = epoch + timedelta(seconds=anchor_s), epoch + timedelta(seconds=start_s)
    schedule = IntervalSchedule(interval, anchor)
    slot = schedule.next_after(start)
    assert slot is not None
    assert slot > start
    assert (slot - anchor) % interval == timedelta()
    assert slot == anchor or slot - interval <= start
    end = start + timedelta(seconds=length_s)
    assert schedule.count(start, end, 50) == len(schedule.between(start, end, 50))


def test_a_slot_has_one_name():
    """The id of a due time does not depend on the time zone in which it is given."""
    from zoneinfo import ZoneInfo

    assert (
        due_time_id(NOON) == due_time_id(NOON.astimezone(ZoneInfo("Asia/Kolkata"))) == "2026-06-01T12:00:00Z"
    )
