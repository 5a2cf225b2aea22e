import sys
import unittest

if sys.argv[1:] == ['test']:
    unittest.main(module=None, argv=['manage.py', 'discover'])
