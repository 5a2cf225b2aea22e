from unittest import mock


def double(number):
    return 2 * number


def add(a, b):
    return a + b


def recorded():
    return mock.Mock(side_effect=add)
