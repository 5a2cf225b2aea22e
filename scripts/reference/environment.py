"""docs/reference/environment.md."""

from reference.markdown import code, table
from ringfence.config.environment import FOREIGN, RESERVED, variable_name
from ringfence.config.fields import Field, all_fields
from ringfence.secret.credential import CODEX_LOGIN, VARIABLES

_HEAD = """\
# Environment variables

Every variable that Ringfence reads. An empty one counts as unset. An unknown variable that begins with `RINGFENCE_` is
an error for commands that load the configuration.

None of them enters a sandbox: commands inside get an environment of their own, to which `sandbox.env` adds.
"""
_CREDENTIALS = {
    ("anthropic", "api_key"): "A key of the Console.",
    ("anthropic", "bearer"): "A gateway's token.",
    ("anthropic", "oauth"): "A Claude subscription's token, from `claude setup-token`.",
    ("openai", "api_key"): "A key of OpenAI's platform.",
    ("openai", "oauth"): "A ChatGPT login: Codex's `auth.json`, as `codex login` makes it.",
}
_OTHERS = (
    ("ANTHROPIC_BASE_URL", "Where the Messages API is; any server that speaks it will do."),
    ("OPENAI_BASE_URL", "Where OpenAI's API is."),
    ("CLAUDE_CONFIG_DIR", "The claude CLI's directory, for `ringfence session`. Default `~/.claude`."),
    ("CODEX_HOME", "The codex CLI's directory, for `ringfence session` and its login. Default `~/.codex`."),
    ("XDG_CACHE_HOME", "Below it, in `ringfence/clones`: what agents of a fleet clone. Default `~/.cache`."),
    (
        "RINGFENCE_FLEET_DATABASE",
        "The database of the fleet that `ringfence fleet worker` joins, `postgresql://...`.",
    ),
    ("XDG_STATE_HOME", "Parent of the state directory: runs, keys, checkpoints. Default `~/.local/state`."),
    ("XDG_CONFIG_HOME", "Parent of the directory of your own `ringfence.yaml`. Default `~/.config`."),
    ("PATH", "Toolchains of yours that are on it are found inside as well."),
    ("NO_COLOR", "Set to anything: no colours."),
    ("TERM", "`dumb`: plain lines, as where the output is no terminal."),
)

_KEYS = f"""\
Options override them, and they override files. Lists and mappings are written as JSON; a variable of the sandbox can
also be given as `{variable_name("sandbox.env")}__NAME=value`.
"""


def page() -> str:
    """The page."""
    credentials = [
        (code(name), f"{_CREDENTIALS[whose]} `{name}_FILE` names a file that holds it.")
        for name, whose in VARIABLES.items()
        if name != CODEX_LOGIN
    ]
    credentials.append(
        (
            code(f"{CODEX_LOGIN}_FILE"),
            f"{_CREDENTIALS['openai', 'oauth']} Default `$CODEX_HOME/auth.json`, else `~/.codex/auth.json`.",
        )
    )
    keys = [
        (code(variable_name(key)), f"[`{key}`](configuration.md#{_heading(field)})")
        for key, field in all_fields().items()
    ]
    own = [(code(name), meaning) for name, meaning in (*RESERVED.items(), *FOREIGN.items())]
    return "\n".join(
        [
            _HEAD,
            "## Credentials of the model\n",
            "For each provider they are asked in this order. They stay on the host.\n",
            table(("variable", "meaning"), credentials),
            "## Ringfence's own\n",
            table(("variable", "meaning"), own),
            "## Keys of the configuration\n",
            _KEYS,
            table(("variable", "key"), keys),
            "## Others that are honoured\n",
            table(("variable", "meaning"), _OTHERS),
        ]
    )


def _heading(field: Field) -> str:
    return field.path[0] if len(field.path) > 1 else "keys-outside-of-sections"
