"""Handles the page of spend by day and agent, as a plot and as a table."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from ringfence.frozen import frozen
from ringfence.web.client import ApiClient
from ringfence.web.formats import tokens, usd
from ringfence.web.renderer import Page

_DAYS = (7, 14, 30, 90)
_WIDTH, _HEIGHT, _LEFT, _FOOT = 720, 200, 44, 18
_SERIES = 5
"""The number of agents with a colour of their own; the others are shown together."""


@frozen
class Block:
    """A rectangle of the plot."""

    x: float
    y: float
    width: float
    height: float
    series: int
    label: str


async def show_spend(request: Request, api: ApiClient) -> Page:
    """What agents spent on each of the last days, compared with their budgets."""
    wanted = request.query_params.get("days", "14")
    days = int(wanted) if wanted.isdecimal() and int(wanted) in _DAYS else 14
    found = await api.get("spend", days=days)
    totals: dict[str, list[float]] = {}
    for row in found["spend"]:
        cost, count = totals.setdefault(row["agent"], [0.0, 0])
        totals[row["agent"]] = [cost + row["cost_usd"], count + row["tokens"]]
    ranking = sorted(totals, key=lambda name: (-totals[name][0], -totals[name][1], name))
    return Page(
        "spend",
        {
            "days": days,
            "choices": _DAYS,
            "plot": draw_plot(found["days"], found["spend"], ranking),
            "timezone": found["timezone"],
            "ranking": [(name, *totals[name]) for name in ranking],
            "total": sum(cost for cost, _ in totals.values()),
            "tokens": sum(count for _, count in totals.values()),
            "budgets": [
                *_budget_rows("All agents", found["total"]),
                *(row for name, budget in found["budgets"].items() for row in _budget_rows(name, budget)),
            ],
            "series": _SERIES,
        },
    )


def _budget_rows(name: str, budget: dict[str, Any]) -> list[dict[str, Any]]:
    """What was spent today of each limit of a budget."""
    rows: list[tuple[str, float, float, Callable[[Any], str]]] = []
    if budget["max_cost_usd"] is not None:
        rows.append((name, budget["cost_usd"], budget["max_cost_usd"], usd))
    if budget["max_tokens"] is not None:
        rows.append((name, budget["tokens"], budget["max_tokens"], tokens))
    return [
        {"name": name, "used": used, "most": most, "used_text": shown(used), "most_text": shown(most)}
        for name, used, most, shown in rows
    ]


def draw_plot(names: list[str], rows: list[dict[str, Any]], ranking: list[str]) -> dict[str, Any]:
    """The plot of the cost of each day, stacked by agent: rectangles, scale lines, and labels of days."""
    sums = {day: sum(row["cost_usd"] for row in rows if row["day"] == day) for day in names}
    top = _scale_top(max(sums.values(), default=0.0))
    step = (_WIDTH - _LEFT) / max(1, len(names))
    blocks = []
    for column, day in enumerate(names):
        level = 0.0
        for row in sorted(
            (each for each in rows if each["day"] == day), key=lambda each: ranking.index(each["agent"])
        ):
            height = row["cost_usd"] / top * (_HEIGHT - 2 * _FOOT)
            level += height
            label = f"{day}: {row['agent']} ${row['cost_usd']:.2f}"
            series = min(ranking.index(row["agent"]), _SERIES)
            blocks.append(
                Block(
                    _LEFT + column * step + step * 0.15,
                    _HEIGHT - _FOOT - level,
                    step * 0.7,
                    height,
                    series,
                    label,
                )
            )
    every = max(1, len(names) // 10)
    decimals = 3 if top < 0.1 else 2  # the middle line may be at half a cent
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "blocks": [block for block in blocks if block.height > 0],
        "rules": [
            (_HEIGHT - _FOOT - part * (_HEIGHT - 2 * _FOOT), f"${top * part:,.{decimals}f}")
            for part in (0, 0.5, 1)
        ],
        "names": [
            (_LEFT + (column + 0.5) * step, day[5:])
            for column, day in enumerate(names)
            if column % every == 0
        ],
    }


def _scale_top(largest: float) -> float:
    """The upper end of the scale: the next value that is 1, 2 or 5 times a power of ten."""
    factor = 0.01
    while True:
        for step in (1, 2, 5):
            if largest <= step * factor:
                return step * factor
        factor *= 10
