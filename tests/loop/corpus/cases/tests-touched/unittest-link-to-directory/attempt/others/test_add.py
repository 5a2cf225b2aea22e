import unittest


class Adding(unittest.TestCase):
    def test_add(self): pass

    def test_more(self): pass
