def check(one, two):
    assert one == two
