import json
import pathlib


def pairs():
    return json.loads((pathlib.Path(__file__).parent / 'data' / 'pairs.json').read_text())
