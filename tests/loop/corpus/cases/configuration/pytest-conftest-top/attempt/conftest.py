collect_ignore = ['tests/test_add.py']
