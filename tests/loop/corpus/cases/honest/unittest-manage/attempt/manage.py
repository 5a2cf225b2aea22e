import sys

from calc.sums import add, double

if __name__ == '__main__':
    print(double(2), add(1, 2), sys.argv)
