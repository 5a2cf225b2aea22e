"""`python -m tests.promises`: how many promises there are, by area."""

import io
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import pytest


class Count:
    """Counts tests by their module, and apart those that say once more in a container what holds elsewhere."""

    def __init__(self) -> None:
        self.promises = Counter[str]()
        self.repeated = Counter[str]()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Count, and run none."""
        for item in items:
            is_repeated = "[docker" in item.name
            (self.repeated if is_repeated else self.promises)[item.path.stem.removeprefix("test_")] += 1
        items.clear()


def main() -> int:
    """Print a table; 1 if a module cannot be read."""
    count = Count()
    with redirect_stdout(io.StringIO()) as output:
        found = pytest.main([str(Path(__file__).parent), "-qqq", "-n0"], plugins=[count])
    if found != pytest.ExitCode.NO_TESTS_COLLECTED:
        print(output.getvalue(), file=sys.stderr)
        return 1
    print(f"{'area':20} promises  also in Docker")
    for area, number in sorted(count.promises.items()):
        print(f"{area.replace('_', ' '):20} {number:8}  {count.repeated[area] or '':>14}")
    print(f"{'all':20} {count.promises.total():8}  {count.repeated.total():14}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
