def double(number):
    return float(2 * number)


def add(a, b):
    return a + b
