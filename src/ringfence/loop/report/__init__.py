"""Builds a loop's report from its rows, and renders it as text, Markdown and HTML.

The renderers are imported on use, as they need Jinja, whose import would delay the start of a loop.
"""

from ringfence.loop.report.build import build_report
from ringfence.loop.report.model import LoopReport

__all__ = ["LoopReport", "build_report"]
