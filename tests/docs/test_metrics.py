"""The table of a crew's figures is the code's."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ringfence.fleet.metrics import Counters, Moment, exposition
from ringfence.fleet.store.totals import Census
from ringfence.job.state import JobState

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "monitor-a-fleet.md"


def test_the_page_lists_each_figure_with_its_meaning():
    """Name, kind, labels and meaning of each family stand on the page as `/metrics` tells them, and no others."""
    counters = Counters()
    counters.lag_s.labels("a").observe(1)
    counters.missed.labels("a").inc()
    census = Census(
        states={("a", JobState.SUCCEEDED): 1}, oldest_s={"a": 0.0}, totals={("a", "ended/failed"): 1.0}
    )
    moment = Moment(agents=["a"], census=census, executors=1, pool={"hits": 1, "misses": 1})
    content, _ = exposition(moment, counters, accept="")
    rows = []
    for family in text_string_to_metric_families(content.decode()):
        if family.name.endswith("_created"):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = sorted({label for one in family.samples for label in one.labels} - {"le"})
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |")
    listed = [line for line in PAGE.read_text().splitlines() if re.match(r"\| `ringfence_", line)]
    assert sorted(rows) == sorted(listed)
