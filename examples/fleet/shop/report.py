"""Prints the sum of the orders."""

from pathlib import Path

amounts = [int(line.split(",")[1]) for line in Path("orders.csv").read_text().splitlines()]
print(f"{len(amounts)} orders, {sum(amounts)} pieces")
