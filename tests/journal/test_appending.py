"""The thread that brings lines to the disk."""

import threading

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.journal.disk import Syncer


def test_a_mark_reaches_the_disk_without_a_wait() -> None:
    """What was marked is flushed by itself, within the delay."""
    flushed = threading.Event()
    syncer = Syncer(flushed.set, delay_s=0.01)
    syncer.mark()
    assert flushed.wait(5)
    syncer.stop()


def test_waiting_does_not_take_the_delay() -> None:
    """`wait` returns when all is flushed, however long a mark might have waited."""
    flushed = threading.Event()
    syncer = Syncer(flushed.set, delay_s=3600)
    syncer.mark()
    assert not flushed.is_set()
    syncer.wait()
    assert flushed.is_set()
    syncer.stop()


def test_stopping_flushes_what_is_left() -> None:
    """Nothing that was marked is left behind."""
    flushed = threading.Event()
    syncer = Syncer(flushed.set, delay_s=3600)
    syncer.mark()
    syncer.stop()
    assert flushed.is_set()


def test_a_failed_disk_is_told() -> None:
    """After a failed flush nothing more is promised."""

    def fail() -> None:
        raise OSError(5, "Input/output error")

    syncer = Syncer(fail, delay_s=3600)
    syncer.mark()
    with pytest.raises(InfrastructureFault, match="Input/output error"):
        syncer.wait()
    with pytest.raises(InfrastructureFault, match="Input/output error"):
        syncer.check()
    syncer.stop()
