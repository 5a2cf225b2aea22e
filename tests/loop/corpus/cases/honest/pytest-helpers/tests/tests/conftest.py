import json
import pathlib

import pytest


@pytest.fixture
def pairs():
    return json.loads((pathlib.Path(__file__).parent / 'data' / 'pairs.json').read_text())
