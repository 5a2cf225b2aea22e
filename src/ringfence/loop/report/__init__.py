"""What a loop came to, for people: gathered from its rows, as Markdown and as a page."""

from ringfence.loop.report.gathering import gather
from ringfence.loop.report.markdown import markdown
from ringfence.loop.report.model import LoopReport
from ringfence.loop.report.page import page

__all__ = ["LoopReport", "gather", "markdown", "page"]
