"""A loop's report: one model, gathered from its rows, with renderings as Markdown and as HTML.

The renderings are imported from their modules, on use: they need Jinja, which no loop has to wait for at its start.
"""

from ringfence.loop.report.gathering import gather
from ringfence.loop.report.model import LoopReport

__all__ = ["LoopReport", "gather"]
