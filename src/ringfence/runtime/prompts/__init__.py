"""System prompts, one text file per toolset.

They hold nothing that differs from run to run: a replay compares them.
"""

from importlib import resources

from ringfence.errors import UsageError


def system_prompt(toolset: str) -> str:
    """The system prompt for an agent with this toolset.

    Raises:
        UsageError: There is none.
    """
    file = resources.files(__name__).joinpath(f"{toolset}.md")
    if "/" in toolset or not file.is_file():
        raise UsageError(
            f"there is no system prompt for toolset {toolset!r}; give the task one with system=..."
        )
    return file.read_text(encoding="utf-8").strip()
