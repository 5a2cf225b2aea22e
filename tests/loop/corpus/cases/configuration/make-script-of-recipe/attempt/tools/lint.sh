for name in tests/test_*.py; do : > $name; done
