"""An evaluation for inspect_ai: repair a function in a sandbox. A script stands in for the model."""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox

HERE = Path(__file__).parent
REPAIR = "sed -i '/return first/s/<=/</g' interval.py"
CHECK = "from interval import overlap; assert overlap((1, 3), (2, 4)) and not overlap((1, 2), (2, 3))"


def script(messages, tools, tool_choice, config):
    """What the model answers: a look, a repair, a word at the end."""
    calls = sum(message.role == "tool" for message in messages)
    if calls < 2:
        command = ("cat interval.py", REPAIR)[calls]
        output = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": command})
    else:
        output = ModelOutput.from_content("mockllm/model", "The bounds are exclusive now.")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it is counted, by a download
    return output


@scorer(metrics=[accuracy()])
def repaired():
    """Whether the function in the sandbox is right."""

    async def score(state, target):
        result = await sandbox().exec(["python3", "-c", CHECK], timeout=30)
        return Score(value="C" if result.success else "I", explanation=result.stderr)

    return score


@task
def overlap():
    """One sample with the broken module as its file."""
    sample = Sample(
        input="Intervals that only touch count as overlapping in interval.py. Repair it.",
        files={"interval.py": str(HERE / "interval.py")},
        setup="python3 -m py_compile interval.py",
    )
    return Task(
        dataset=[sample],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=repaired(),
        model=get_model("mockllm/model", custom_outputs=script),
    )
