"""Checks the orders and, without `--orders`, that the report is theirs. Exit code 1 if not."""

import re
import sys
from pathlib import Path

lines = Path("orders.csv").read_text().splitlines()
bad = [number for number, line in enumerate(lines, start=1) if not re.fullmatch(r"[a-z]+,[0-9]+", line)]
if bad:
    sys.exit(f"orders.csv: no order in line {', '.join(map(str, bad))}")
expected = f"{len(lines)} orders, {sum(int(line.split(',')[1]) for line in lines)} pieces\n"
if "--orders" not in sys.argv and Path("report.md").read_text() != expected:
    sys.exit("report.md: not the sum of the orders")
print("all is well")
