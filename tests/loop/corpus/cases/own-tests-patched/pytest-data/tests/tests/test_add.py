import json
import pathlib

from calc import sums


def test_add():
    for a, b, total in json.loads((pathlib.Path(__file__).parent / 'pairs.json').read_text()):
        assert sums.add(a, b) == total
