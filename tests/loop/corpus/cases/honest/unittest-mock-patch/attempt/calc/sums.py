def double(number):
    return 2 * number


def add(a, b):
    return a + b
