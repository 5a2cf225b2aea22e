"""A model that replies by a script, in the APIs of Anthropic and OpenAI.

Its server is `ringfence.testing.scripted_model`; within a run it is an upstream of the model gateway.
"""

from ringfence.model.scripted.loader import load_script, parse_script
from ringfence.model.scripted.progress import in_prompt
from ringfence.model.scripted.script import Script, Turn

__all__ = ["Script", "Turn", "in_prompt", "load_script", "parse_script"]
