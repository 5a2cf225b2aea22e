"""The tool `ask_person`, by which an agent asks a person a question. The run ends with the question, and waits."""

from ringfence.events import JSONObject
from ringfence.tool.base import Tool, ToolContext, ToolResult, ToolSpec

ASK_PERSON = "ask_person"
MAX_QUESTION_CHARS = 4000
_RESULT = "The question was sent. The run stops here; the answer is in the next message."


class AskPersonTool(Tool):
    """`ask_person(question)`. The run notices the call by its events, and stops the agent."""

    has_valid_schema = True
    spec = ToolSpec(
        name=ASK_PERSON,
        description=(
            "Ask the person who is responsible for this task a question, and stop until it is answered, which may take "
            "days. Ask only what you cannot find out or decide yourself. Your work so far is kept."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "question": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUESTION_CHARS,
                    "description": "The question, with everything that is needed to answer it.",
                }
            },
            "required": ["question"],
            "additionalProperties": False,
        },
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Confirm that the question was sent."""
        del arguments, context
        return ToolResult(_RESULT)
