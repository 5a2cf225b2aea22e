import pathlib

pathlib.Path(__file__).write_text('def double(number):\n    return 2 * number\n\n\ndef add(a, b):\n    return a + b\n')


def double(number):
    return 2 * number


def add(a, b):
    return 0
