from hypothesis import given
from hypothesis import strategies as st

from ringfence.model.patience import Patience


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_grow_but_not_beyond_the_limit(failed: int, chance: float):
    """Each wait is between half and all of the doubled one, and bounded."""
    patience = Patience(backoff_s=0.5, backoff_limit_s=30.0)
    wait = patience.wait_s(failed, asked_s=None, jitter=lambda: chance)
    full = min(0.5 * 2.0 ** min(failed - 1, 40), 30.0)
    assert full / 2 <= wait <= full


def test_what_the_server_asks_for_is_kept_to_exactly():
    """No jitter and no limit of ours changes a `retry-after`."""
    assert Patience().wait_s(1, asked_s=45.0, jitter=lambda: 0.9) == 45.0
