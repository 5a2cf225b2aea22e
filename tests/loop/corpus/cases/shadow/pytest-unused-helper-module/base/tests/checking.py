def check(a, b):
    assert a == b
