import pytest
from jsonschema import Draft202012Validator

from ringfence.errors import UsageError
from ringfence.tool.toolset import toolset_names, toolset_tools


@pytest.mark.parametrize("name", toolset_names())
def test_every_toolset_loads(name: str) -> None:
    """Each name leads to tools with distinct names and a description."""
    tools = toolset_tools(name)
    assert len({tool.spec.name for tool in tools}) == len(tools) > 0
    assert all(tool.spec.description for tool in tools)
    for tool in tools:  # which are taken for valid until they are used
        Draft202012Validator.check_schema(tool.spec.input_schema)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """The next step is in the text."""
    with pytest.raises(UsageError, match="no toolset 'x'; there are: coder, operator"):
        toolset_tools("x")
