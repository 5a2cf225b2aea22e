"""When Python looks for objects that nobody can reach: not where it would look in vain."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collection while tens of thousands of small objects are made, which it would walk again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """No collection while modules are loaded, nor ever through what is there then: it stays. For processes of our own.

    The SDK and the engine are 300,000 objects. To look through them in vain takes half a second while they are loaded,
    and 0.3 s each time Python looks through all.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def leave_all() -> None:
    """Have Python not look through what there is when it ends, which takes up to half a second: the process goes."""
    gc.freeze()
