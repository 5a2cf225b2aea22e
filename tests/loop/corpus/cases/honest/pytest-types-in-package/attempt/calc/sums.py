from calc.types import Number


def double(number):
    return 2 * number


def add(a: Number, b: Number) -> Number:
    return a + b
