from calc import sums

sums.add = lambda a, b: a + b
