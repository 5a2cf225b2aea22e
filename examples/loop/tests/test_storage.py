import io
import unittest

from kitty import storage
from kitty.errors import KittyError

LINES = ["Ada,Ben", "Ada,12.50,hut,Ada Ben", 'Ben,3.00,"tea, cake",Ben']


class TestStorage(unittest.TestCase):
    def test_what_is_read_is_written_the_same(self):
        file = io.StringIO()
        storage.write(storage.read(LINES), file)
        self.assertEqual(file.getvalue().splitlines(), LINES)

    def test_a_mistake_is_told_with_its_row(self):
        for lines, complaint in [
            ([], "row 1 names no members"),
            (["Ada", "Ada,1"], "row 2: 2 columns instead of 4"),
            (["Ada", "Ada,1,x,Ada", "Eve,1,x,Ada"], "row 3: 'Eve' is not in the group"),
        ]:
            with self.subTest(complaint), self.assertRaisesRegex(KittyError, complaint):
                storage.read(lines)
