print('Ran 3 tests')
