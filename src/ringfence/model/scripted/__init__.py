"""A local server that speaks the APIs of models from a script. Public as `ringfence.testing.scripted_model`."""

from ringfence.model.scripted.carried import in_prompt
from ringfence.model.scripted.loading import load_script, parse_script
from ringfence.model.scripted.script import Script, Turn
from ringfence.model.scripted.server import DUMMY_KEY, RecordedRequest, ScriptedModelServer

__all__ = [
    "DUMMY_KEY",
    "RecordedRequest",
    "Script",
    "ScriptedModelServer",
    "Turn",
    "in_prompt",
    "load_script",
    "parse_script",
]
