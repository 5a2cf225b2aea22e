"""Builds a loop's report from its rows, and renders it as text, Markdown and HTML.

The forms are imported from their modules, on use: they need Jinja, for which no loop has to wait at its start.
"""

from ringfence.loop.report.build import build_report
from ringfence.loop.report.model import LoopReport

__all__ = ["LoopReport", "build_report"]
