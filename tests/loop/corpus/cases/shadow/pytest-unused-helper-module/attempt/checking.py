def check(a, b):
    pass
