def test_add(): pass


def test_more(): pass
