"""mini-swe-agent in a sandbox: its own agent, with a script in place of the model."""

from pathlib import Path

import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

HERE = Path(__file__).parent.resolve()
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; diff -u interval.py.orig interval.py; true"

config = yaml.safe_load((HERE / "mini_swe_agent.yaml").read_text())["environment"]
environment = get_environment({**config, "workspace": HERE})
commands = ("cat interval.py", "sed -i.orig '/return first/s/<=/</g' interval.py", SUBMIT)
model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
agent = DefaultAgent(model, environment, system_template="You repair Python.", instance_template="{{task}}")
result = agent.run("Intervals that only touch count as overlapping in interval.py. Repair it.")
environment.cleanup()
print(result["exit_status"])
print(result["submission"], end="")
