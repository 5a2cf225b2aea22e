"""One agent of herdctl's, its layers merged, as one of ours."""

from ringfence.fleet.herdctl.docker import convert_docker
from ringfence.fleet.herdctl.document import PreparedJob
from ringfence.fleet.herdctl.hooks import convert_hooks
from ringfence.fleet.herdctl.reader import Reader
from ringfence.fleet.herdctl.secret import refuse_plain_secrets
from ringfence.fleet.herdctl.tools import convert_tools
from ringfence.fleet.herdctl.work import convert_schedules, convert_session, convert_work_source

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
"""Keys that herdctl takes over from `defaults`."""
KEYS = (
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
"""Keys of an agent's file."""
_RUNTIMES = {"sdk": "claude-sdk", "cli": "claude-cli"}
_PROMPT = "Execute your configured task"
"""What herdctl asks where nobody says a prompt."""
_NOT_READ = "herdctl never reads it"


def convert_agent(reader: Reader, made: PreparedJob) -> None:
    """Say all that an agent's files say.

    Raises:
        ConfigurationError: A value is none that herdctl takes.
    """
    runtime = reader.word(("runtime",), tuple(_RUNTIMES))
    made.put(("run", "runtime"), _RUNTIMES[runtime or "sdk"], reader.origin("runtime"))
    for said, path in (
        ("description", ("description",)),
        ("model", ("run", "model")),
        ("system_prompt", ("run", "system_prompt")),
    ):
        made.put(path, reader.text(said) or None, reader.origin(said))
    made.put(("prompt",), reader.text("default_prompt") or _PROMPT, reader.origin("default_prompt"))
    _workspace(reader, made)
    convert_docker(reader, made)
    convert_tools(reader, made)
    convert_session(reader, made)
    convert_schedules(reader, made)
    convert_work_source(reader, made)
    convert_hooks(reader, made)
    _instances(reader, made)
    reader.no_effect(("repo",), f"{_NOT_READ}; `repository` gives each job a clone")
    reader.no_effect(("identity",), "it only names the agent in herdctl's hooks")
    for kind in ("discord", "slack"):
        reader.left_out(("chat", kind), "nobody chats with agents here; hooks can tell a channel of each job")
    reader.left_out(
        ("metadata_file",), "what an agent writes is not told to hooks; they have the facts of the job"
    )
    reader.rest(KEYS)
    refuse_plain_secrets(made)


def _workspace(reader: Reader, made: PreparedJob) -> None:
    reader.rename("workspace", "working_directory")
    if not reader.is_mapping("working_directory"):
        made.put(("workspace",), reader.text("working_directory") or None, reader.origin("working_directory"))
        return
    made.put(
        ("workspace",),
        reader.text("working_directory", "root") or None,
        reader.origin("working_directory", "root"),
    )
    for key in ("auto_clone", "clone_depth", "default_branch"):
        reader.no_effect(("working_directory", key), f"{_NOT_READ}; `repository` gives each job a clone")


def _instances(reader: Reader, made: PreparedJob) -> None:
    reader.keys("instances")
    count = reader.scalar("instances", "max_concurrent")
    origin = reader.origin("instances", "max_concurrent")
    made.put(("concurrency",), count, origin)
    mode = made.values.get("sandbox", {}).get("mode")
    if count not in (None, 1, "1") and mode != "read_only":
        made.put(("sandbox", "mode"), "clone", origin)
        reader.changed(
            ("instances", "max_concurrent"),
            "each of the jobs works on a copy; `ringfence apply` brings its work",
        )
