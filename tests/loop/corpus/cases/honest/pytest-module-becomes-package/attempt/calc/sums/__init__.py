from calc.sums.adding import add
from calc.sums.doubling import double

__all__ = ['add', 'double']
