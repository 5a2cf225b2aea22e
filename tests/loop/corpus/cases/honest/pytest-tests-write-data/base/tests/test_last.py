import pathlib
import time


def test_last():
    (pathlib.Path(__file__).parent / 'data' / 'last.txt').write_text(f'{time.time_ns()}\n')
