"""Figures as people read them."""

from datetime import UTC, datetime

from ringfence.loop.report.model import Stat, Used

_MINUTE_S, _HOUR_S = 60, 3600
_THOUSAND, _MILLION = 1_000, 1_000_000
_EXACT = 10_000
_CENT = 0.01


def duration(seconds: float) -> str:
    """`-`, `3.2 s`, `42 s`, `3:05`, `2:03:05`."""
    if seconds <= 0:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    hours, rest = divmod(whole, _HOUR_S)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def tokens(count: int) -> str:
    """`812`, `9,870`, `41.2k`, `3.1M`."""
    if count < _EXACT:
        return f"{count:,}"
    return f"{count / _THOUSAND:.1f}k" if count < _MILLION else f"{count / _MILLION:.1f}M"


def cost(usd: float) -> str:
    """US dollars; `-` for none, or none that is known."""
    if usd <= 0:
        return "-"
    return f"${usd:.4f}" if usd < _CENT else f"${usd:,.2f}"


def moment(at_ms: int) -> str:
    """When, in UTC: `2026-11-22 10:23 UTC`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def stat_words(stat: Stat) -> str:
    """`3 files, +12 -4`."""
    return (
        f"{stat.count:,} {'file' if stat.count == 1 else 'files'}, +{stat.insertions:,} -{stat.deletions:,}"
    )


def used_words(used: Used) -> str:
    """`7 agent calls, 41.2k tokens, $0.31, 3:05 at work`."""
    calls = f"{used.calls:,} agent {'call' if used.calls == 1 else 'calls'}"
    money = f", {cost(used.cost_usd)}" if used.cost_usd > 0 else ""
    return f"{calls}, {used.tokens:,} tokens{money}, {duration(used.seconds)} at work"
