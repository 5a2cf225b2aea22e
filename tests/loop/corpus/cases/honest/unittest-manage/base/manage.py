from calc.sums import double

if __name__ == '__main__':
    print(double(2))
