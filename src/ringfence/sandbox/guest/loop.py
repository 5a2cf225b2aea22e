"""The guest's one wait: descriptors, and what is called when they are ready."""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """An epoll with a function for each descriptor."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}

    def listen(self, descriptor: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call `handler` with the event mask when `descriptor` is ready."""
        if descriptor in self._handlers:
            self._poll.modify(descriptor, mask)
        else:
            self._poll.register(descriptor, mask)
        self._handlers[descriptor] = handler

    def ignore(self, descriptor: int) -> None:
        """Stop listening to `descriptor`."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def turn(self, pause_s: float) -> bool:
        """Wait up to `pause_s` (-1: for ever), call what is ready; False if nothing was."""
        events = self._poll.poll(pause_s)
        for descriptor, mask in events:
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler(mask)
        return bool(events)
