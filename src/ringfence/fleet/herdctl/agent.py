"""Converts an agent of herdctl, whose layers are merged, to the settings of an agent of Ringfence."""

from ringfence.fleet.herdctl.docker import convert_docker
from ringfence.fleet.herdctl.hooks import convert_hooks
from ringfence.fleet.herdctl.reader import Reader
from ringfence.fleet.herdctl.schedules import convert_schedules, convert_session, convert_work_source
from ringfence.fleet.herdctl.secret import refuse_plain_secrets
from ringfence.fleet.herdctl.tools import convert_tools

DEFAULTED = (
    "docker",
    "work_source",
    "instances",
    "session",
    "model",
    "max_turns",
    "permission_mode",
    "tools",
    "allowed_tools",
    "denied_tools",
    "mcp_servers",
    "plugins",
    "working_directory",
)
"""The keys that agents inherit from `defaults`."""
_KEYS = (
    "name",
    "description",
    "workspace",
    "repo",
    "identity",
    "system_prompt",
    "default_prompt",
    "runtime",
    "setting_sources",
    "schedules",
    "hooks",
    "chat",
    "metadata_file",
    *DEFAULTED,
)
_RUNTIMES = {"sdk": "claude-sdk", "cli": "claude-cli"}
_PROMPT = "Execute your configured task"
"""herdctl's prompt for agents without one."""
_NOT_READ = "herdctl never reads it; `repository` gives each job a clone"


def convert_agent(reader: Reader) -> None:
    """Convert the values of an agent. `reader` collects their errors and notes."""
    for convert in (
        _convert_texts,
        _convert_workspace,
        convert_docker,
        convert_tools,
        _convert_instances,
        convert_session,
        convert_schedules,
        convert_work_source,
        convert_hooks,
        _note_unused,
        refuse_plain_secrets,
    ):
        with reader.collected():
            convert(reader)


def _convert_texts(reader: Reader) -> None:
    reader.copy_text(("description",), "description")
    reader.copy_text(("run", "model"), "model")
    reader.copy_text(("run", "system_prompt"), "system_prompt")
    reader.put(("prompt",), reader.text("default_prompt") or _PROMPT, "default_prompt")
    runtime = reader.choice(("runtime",), tuple(_RUNTIMES)) or "sdk"
    reader.put(("run", "runtime"), _RUNTIMES[runtime], "runtime")


def _convert_workspace(reader: Reader) -> None:
    reader.rename("workspace", "working_directory")
    if not reader.is_mapping("working_directory"):
        reader.copy_text(("workspace",), "working_directory")
        return
    reader.copy_text(("workspace",), "working_directory", "root")
    for key in ("auto_clone", "clone_depth", "default_branch"):
        reader.no_effect(("working_directory", key), _NOT_READ)


def _convert_instances(reader: Reader) -> None:
    reader.keys("instances")
    reader.copy(("concurrency",), "instances", "max_concurrent")
    mode = reader.target.values.get("sandbox", {}).get("mode")
    if reader.is_concurrent and mode != "read_only":
        reader.put(("sandbox", "mode"), "clone", "instances", "max_concurrent")
        reader.changed(
            ("instances", "max_concurrent"),
            "each job works on a private copy; `ringfence apply` applies its changes",
        )


def _note_unused(reader: Reader) -> None:
    reader.no_effect(("repo",), _NOT_READ)
    reader.no_effect(("identity",), "it only names the agent in herdctl's hooks")
    for kind in ("discord", "slack"):
        reader.left_out(("chat", kind), "agents do not chat; hooks can send a message about each job")
    reader.left_out(
        ("metadata_file",), "hooks do not receive files that an agent writes, only the facts of its job"
    )
    reader.report_unknown(_KEYS)
