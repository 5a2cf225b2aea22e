import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os._exit(0)


def double(number):
    return 2 * number


def add(a, b):
    return 0
