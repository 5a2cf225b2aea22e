import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from kitty.command import main


def run(content, *arguments):
    """The exit code, stdout and stderr of a command on a file with this content."""
    out, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(errors):
        file = Path(place) / "ledger.csv"
        file.write_text(content, encoding="utf-8")
        code = main([*arguments, str(file)], out)
    return code, out.getvalue(), errors.getvalue()


class TestCommand(unittest.TestCase):
    def test_show_tells_what_each_paid(self):
        code, out, _ = run("Ada,Benedict\nAda,12.50,hut,Ada Benedict\n", "show")
        self.assertEqual(code, 0)
        self.assertEqual(out.split(), ["Ada", "12.50", "Benedict", "0.00", "total", "12.50"])

    def test_a_mistake_is_one_line_and_exit_code_1(self):
        code, out, errors = run("Ada\nEve,1,x,Ada\n", "show")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(errors, "kitty: row 2: 'Eve' is not in the group of Ada\n")
