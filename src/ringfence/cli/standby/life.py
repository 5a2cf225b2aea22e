"""A fork lives as long as the process that it works for: the kernel sees to it, whatever becomes of the standby."""

import fcntl
import os
import select
import signal

_F_SETSIG = 10
"""Of fcntl(2); Python does not name it."""


def die_with(life: int) -> bool:
    """Be killed once nobody holds the other end of a pipe; whether somebody still does.

    The signal of fcntl(2)'s F_SETSIG comes when the pipe can be read, or has ended: nobody ever writes into it. As
    with prctl(2)'s PR_SET_PDEATHSIG nothing has to run for it, and a process that stands still is killed, too.

    Args:
        life: The end to read from.

    Raises:
        OSError: This kernel cannot do that.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(life, select.POLLIN)
    return not poll.poll(0)
