import os
import signal

os.kill(os.getpid(), signal.SIGKILL)


def double(number):
    return 2 * number


def add(a, b):
    return 0
