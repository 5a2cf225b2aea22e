"""Every event can be read again."""

from typing import get_args

from ringfence import events
from ringfence.events import Event


def test_every_event_is_one_that_readers_know() -> None:
    """One that is not in the union would be told as unknown by whoever reads the journal."""
    kinds = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    }
    assert kinds == set(get_args(events.AnyEvent))
