"""The settings of a run, as frozen models. The module `layers` knows the origin of each value."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from ringfence.config.egress import Egress, ProviderTool
from ringfence.config.engine_access import EngineAct, check_label
from ringfence.config.forward import Forward, check_forwards, read_forward
from ringfence.config.kubernetes import KubernetesPods
from ringfence.config.names import (
    BackendName,
    PermissionMode,
    QuestionKind,
    RuntimeName,
    SettingsSource,
    check_model_name,
    full_runtime_name,
)
from ringfence.config.secret_reference import SecretName, SecretReference
from ringfence.config.units import ByteCount, Seconds
from ringfence.config.values import (
    Count,
    DiskSize,
    ImportReference,
    Labels,
    Loosening,
    MemorySize,
    PositiveNumber,
    Price,
    ProtectPattern,
    Text,
    VariableName,
    absolute_path,
    distinct,
    no_boolean,
    text,
)


def _forwards(values: tuple[str, ...]) -> tuple[str, ...]:
    check_forwards(tuple(Forward.model_validate(value) for value in values))
    return values


def _forward(value: str) -> str:
    return str(Forward(**read_forward(value)))  # in canonical spelling, because layers compare forwards


def _kinds_distinct(kinds: tuple[QuestionKind, ...]) -> tuple[QuestionKind, ...]:
    distinct(kinds)
    return kinds


def _servers_distinct(servers: "tuple[McpServer, ...]") -> "tuple[McpServer, ...]":
    distinct(server.name for server in servers)
    return servers


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MountSettings(_Section):
    """A host path that is mounted in the sandbox, besides the workspace."""

    source: Annotated[Path, AfterValidator(absolute_path)]
    """Absolute path on the host."""
    target: Annotated[Text, AfterValidator(absolute_path)]
    """Absolute path in the sandbox."""
    read_only: bool = True
    """Whether the sandbox may only read it."""


class SandboxSettings(_Section):
    """The fence around the agent."""

    backend: BackendName = "auto"
    """Kind of fence, or `auto`. In a file, `host` (no fence) also needs `unsafe: [host_backend]`."""
    mode: Literal["bind", "read_only", "clone"] | None = None
    """How the sandbox accesses the workspace. null: `bind` if you own it and are not root, else `clone`."""
    image: Text | None = None
    """Container image, for backends that use one; pinned by tag or digest, never `latest`."""
    registries: tuple[Text, ...] | None = None
    """Registries that images may come from, besides those built here. null: any."""
    digest_only: bool = False
    """Refuse images that are not pinned by digest."""
    engine: Text | None = None
    """The container engine: an address (unix://, tcp://, ssh://) or a docker context; for Kubernetes a kubeconfig's
    context. null: it is searched."""
    runtime: Text | None = None
    """OCI runtime of the engine, such as `runsc`; for Kubernetes a RuntimeClass. null: the backend's own."""
    kubernetes: KubernetesPods = KubernetesPods()
    """Pods of the backend `kubernetes`."""
    network: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")] = "none"
    """`none`: the sandbox has no network interface, and `egress.allow` and `sandbox.forward` work all the same, because
    they go through the gate. With `unsafe: [network]` an engine's `bridge` or named network, which rules of `egress` do
    not restrict; for Kubernetes `unenforced`, which accepts a cluster that does not enforce its NetworkPolicies."""
    labels: dict[Text, Annotated[str, AfterValidator(text)]] = Field(default_factory=dict)
    """Labels of containers, besides ringfence's own."""
    tmp_exec: bool = False
    """Allow programs in a container's /tmp to be executed. It always is in /var/tmp, to which TMPDIR points."""
    fallback: Literal["none", "host"] = "none"
    """`host`: run without a fence if none is available. In a file this needs `unsafe: [host_backend]`."""
    memory: MemorySize = 2 * 1024**3
    """Memory of all processes in the sandbox together, at least 16m."""
    cpus: PositiveNumber = 2.0
    """Processor time per second of wall clock."""
    pids: Annotated[Count, Field(ge=8)] = 512
    """Number of processes and threads in the sandbox."""
    disk: DiskSize = 10 * 1024**3
    """Growth of workspace and home, at least 1m. Ringfence monitors it; the kernel does not enforce it."""
    tmp: ByteCount = 1024**3
    """Size of the private /tmp. It counts as memory."""
    ttl: Seconds | None = None
    """Time after which the sandbox ends itself, whatever the host does. null: no limit."""
    env: dict[VariableName, Annotated[str, AfterValidator(text)]] = Field(default_factory=dict)
    """Environment of every command in the sandbox. Never put a secret here."""
    mounts: tuple[MountSettings, ...] = ()
    """Host paths to mount in the sandbox, besides the workspace: a list of {source, target, read_only}."""
    forward: Annotated[tuple[Annotated[Text, AfterValidator(_forward)], ...], AfterValidator(_forwards)] = ()
    """TCP services that are reachable at the sandbox's 127.0.0.1: a list of `HOST:PORT` or `NAME[:PORT]=HOST:PORT`."""
    setup: tuple[Text, ...] = ()
    """Shell commands that run once in the sandbox, in the workspace, before the agent starts."""
    soft_limits: bool = False
    """Accept a watchdog if the kernel cannot enforce a requested limit."""
    hide_toolchains: bool = False
    """Do not mount your toolchains (pyenv, nvm, cargo, ...) in the sandbox."""
    protect: Annotated[tuple[ProtectPattern, ...], Field(max_length=100)] = ()
    """Further path patterns (as in .gitignore) that the agent may not write. The patterns of all layers apply."""

    def spec_arguments(self) -> dict[str, Any]:
        """Return the arguments of a `SandboxSpec`, without defaults.

        A spec distinguishes requested limits from defaults by the arguments that it receives.
        """
        renamed = {"ttl": "ttl_s"}
        chosen = self.model_dump(exclude_unset=True)
        return {renamed.get(key, key): value for key, value in chosen.items()}


class RunSettings(_Section):
    """The agent and its task."""

    runtime: Annotated[RuntimeName, BeforeValidator(full_runtime_name)] = "api"
    """The agent: `api`, our own loop over the Messages API, or an agent CLI in the sandbox: `claude-cli` (short:
    `claude`), `claude-sdk`, `codex-cli` (short: `codex`)."""
    model: Annotated[Text, AfterValidator(check_model_name)] = "claude-sonnet-5-5"
    """Name of the model, or `scripted:FILE`. Of `codex-cli`, if none is named: `gpt-6.1-sol`."""
    toolset: Literal["operator", "coder"] = "coder"
    """What the agent may do: `operator` has a shell, `coder` also reads, writes, edits and searches files."""
    system_prompt: Text | None = None
    """System prompt that replaces the agent's own."""
    system_append: Text | None = None
    """Text that is appended to the agent's system prompt."""
    output_schema: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """File with a JSON Schema of the answer."""
    verify: Text | None = None
    """Shell command that decides the outcome, run in a new sandbox after the agent's has ended; `none`: no check is
    wanted, and an end without one has exit code 0."""
    require_verified: bool = False
    """Refuse a run without a check; one that ends `unverified` all the same exits with 3."""


class LimitSettings(_Section):
    """Bounds of one run, enforced from outside the agent."""

    turns: Count = 60
    """Number of replies of the model."""
    tool_calls: Count = 300
    """Number of tool calls."""
    tokens: Count = 4_000_000
    """Number of tokens, cached ones included."""
    cost_usd: PositiveNumber | None = None
    """Cost in US dollars; needs a known price for the model. null: no bound."""
    wall_clock: Seconds = 1800.0
    """Time for the agent's work and the check, from the start of the sandbox."""


class PriceSettings(_Section):
    """Prices of a model, in US dollars per million tokens."""

    input: Price
    """Tokens sent that are neither written to nor read from the cache."""
    output: Price
    """Tokens received."""
    cache_write: Price
    """Tokens written to the cache."""
    cache_write_1h: Price | None = None
    """Tokens written to the cache that lasts an hour; null is twice `input`."""
    cache_read: Price
    """Tokens read from the cache."""


class McpServer(_Section):
    """An MCP server, which is started in a sandbox and used over stdio."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}$")]
    """Prefix of its tools: up to 32 letters, digits, - and single _."""
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Program and arguments."""


class ToolSettings(_Section):
    """Tools besides those of the toolset."""

    python: tuple[ImportReference, ...] = ()
    """Your own tools as `module:function`. They run on the host, outside the fence."""
    mcp: Annotated[tuple[McpServer, ...], AfterValidator(_servers_distinct)] = ()
    """MCP servers: a list of {name, command}."""
    allow: tuple[Text, ...] = ()
    """The only tools that the agent may use, by the runtime's names. Empty: all of its own."""
    deny: tuple[Text, ...] = ()
    """Tools that the agent may not use."""
    permit: tuple[Text, ...] = ()
    """Tools that the agent may use although `allow` or `client.permission_mode` leaves them out; `deny` is stronger."""


class ClientSettings(_Section):
    """The program of a runtime that is one: `claude-cli`, `claude-sdk`, `codex-cli`."""

    path: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """The program, on the host or in the image. null: it is searched."""
    args: tuple[Text, ...] = ()
    """Further arguments, which are passed to the program unchanged."""
    permission_mode: PermissionMode | None = None
    """Actions that the program may take without asking. `bypass`: all that the fence allows;
    `accept_edits`: edits, but no commands; `plan`: it only reads and plans; `deny`: only what `tools.allow` names.
    null: `bypass`, as there is a fence."""
    plugins: tuple[Annotated[Path, AfterValidator(absolute_path)], ...] = ()
    """Directories of its plugins on the host; they are mounted in the sandbox, read-only."""
    settings_sources: tuple[SettingsSource, ...] = ()
    """The program's own settings that apply: `user`, `project`, `local`. Hooks, servers and variables that the workspace
    names then run in the sandbox. Empty: none."""
    idle_timeout: Seconds | None = None
    """Stop the program if it prints nothing for this time. null: only `limits.wall_clock` applies."""
    force: bool = False
    """Try a version outside of the tested range."""


class PoolSettings(_Section):
    """Sandboxes started ahead, so that a run need not wait for its own."""

    size: Annotated[int, BeforeValidator(no_boolean), Field(ge=0, le=64)] = 0
    """Number of sandboxes to keep ready for each kind of run on each workspace. 0: none."""
    max_age: Seconds = 3600.0
    """Time after which an unused sandbox ends."""


class EngineSettings(_Section):
    """A filtered container engine: DOCKER_HOST in the sandbox points to it, never to the engine's own socket."""

    label: Annotated[Text, AfterValidator(check_label)] | None = None
    """Containers (and images) with this label, `KEY` or `KEY=VALUE`, can be inspected. null: there is no engine."""
    allow: tuple[EngineAct, ...] = ()
    """Further actions on these containers: `start`, `stop`, `restart`, `exec`, `exec_user`. Needs `engine.label`."""
    socket: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """The engine's Unix socket on the host. null: DOCKER_HOST, else the usual places of Docker and Podman."""

    @model_validator(mode="after")
    def _check_label_set(self) -> "EngineSettings":
        if self.label is None and (self.allow or self.socket):
            raise ValueError(
                "engine.allow and engine.socket have no effect without engine.label; set it, or remove them"
            )
        return self


class EgressSettings(Egress):
    """The egress of the sandbox through the gate. By default there is none."""

    models: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    """Models that may be used; `claude-haiku-*` stands for all whose name starts so. Empty: any."""
    provider_tools: tuple[ProviderTool, ...] = ()
    """Services of models' providers that may be used besides replies:
    `web_search`, `web_fetch`, `code_execution`, `mcp`,
    `files`, `file_search`, `image_generation`, `computer`, `urls`. They run at the provider, beyond the gate."""


class AskSettings(_Section):
    """Questions to a person: a run that is refused something can ask for it, and wait, instead of doing without."""

    about: Annotated[tuple[QuestionKind, ...], AfterValidator(_kinds_distinct)] = ()
    """Refusals that end the run with a question: `host` (a host that no rule allows), `tool` (a tool that is not
    permitted), `budget` (the limit on tokens or cost), `question` (the agent's own). Empty: none."""
    deadline: Seconds = 7 * 86400.0
    """Time after which a question of a fleet's job is closed, and the job ends `blocked`."""


class Settings(_Section):
    """Configuration of Ringfence."""

    model_config = ConfigDict(title="ringfence.yaml")

    sandbox: SandboxSettings = SandboxSettings()
    """The fence around the agent."""
    run: RunSettings = RunSettings()
    """The agent and its task."""
    pool: PoolSettings = PoolSettings()
    """Sandboxes started ahead, so that a run need not wait for its own."""
    limits: LimitSettings = LimitSettings()
    """Bounds of one run, enforced from outside the agent."""
    engine: EngineSettings = EngineSettings()
    """A container engine for the agent, filtered."""
    egress: EgressSettings = EgressSettings()
    """The egress of the sandbox through the gate. By default there is none."""
    prices: dict[Text, PriceSettings] = Field(default_factory=dict)
    """Prices by model name, in US dollars per million tokens; they override the built-in table."""
    tools: ToolSettings = ToolSettings()
    """Tools besides those of the toolset."""
    client: ClientSettings = ClientSettings()
    """The program of a runtime that is one."""
    ask: AskSettings = AskSettings()
    """Questions to a person: a run that is refused something can ask for it, and wait, instead of doing without."""
    secrets: dict[SecretName, SecretReference] = Field(default_factory=dict)
    """Where your secrets come from, by name: references, never values. Names of credentials, such as
    ANTHROPIC_API_KEY, are the models'."""
    auth: Literal["keyless", "inject"] = "keyless"
    """`keyless`: the sandbox has no credentials. `inject`: it has those of the models; in a file this needs
    `unsafe: [auth_inject]`."""
    labels: Labels = Field(default_factory=dict)
    """Labels of the run, KEY: VALUE. They are in its record, and lists of runs can be filtered by them."""
    unsafe: tuple[Loosening, ...] = ()
    """Loosenings, by name. `host_backend` lets a file choose the host, which is no fence at all; `network` lets
    `sandbox.network` be another than none; `egress` lets a file open every public host; `auth_inject` lets it put
    credentials inside; `host_hooks` lets hooks of a fleet's agents run on the host. Except for `network`, options of
    the command line and variables need none of these names."""
