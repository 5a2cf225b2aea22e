"""The configuration that `codex` finds inside."""

import json
from collections.abc import Iterator

from ringfence.runtime.client.base import Place
from ringfence.runtime.options import Options
from ringfence.tool.mcp_server import McpServer

_PROVIDER = "gate"


def configuration(place: Place, options: Options | None, state_dir: str) -> bytes:
    """The gateway as the provider, nothing told to anybody else, and what the options ask for.

    Args:
        place: Where it works.
        options: None for a person's terminal.
        state_dir: Its directory inside.
    """
    lines = list(_top(options, state_dir))
    lines += [
        f"[model_providers.{_PROVIDER}]",
        'name = "the model gateway"',
        f"base_url = {_text(f'{place.base_url}/v1')}",
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 2",
        "stream_max_retries = 2",
        "[analytics]",
        "enabled = false",
        "[features]",
        "plugins = false",
        "apps = false",
        "hooks = false",  # else a person is asked about those of the workspace
        "[shell_environment_policy]",
        "ignore_default_excludes = false",
    ]
    if options is None:
        # A person is not asked whether to trust the folder: what its `.codex` starts is in the fence, too. A folder
        # that is marked as not trusted has its AGENTS.md passed over.
        lines += [f"[projects.{_text(place.workspace)}]", 'trust_level = "trusted"']
    for server in options.mcp_servers if options is not None else ():
        lines += _server(server)
    return "\n".join([*lines, ""]).encode("utf-8", "replace")


def _top(options: Options | None, state_dir: str) -> Iterator[str]:
    yield f"model_provider = {_text(_PROVIDER)}"
    yield "check_for_update_on_startup = false"
    if options is None:
        return
    if options.system_prompt is not None:
        yield f"model_instructions_file = {_text(f'{state_dir}/instructions.md')}"
    if options.system_append is not None:
        yield f"developer_instructions = {_text(options.system_append)}"


def _server(server: McpServer) -> Iterator[str]:
    yield f"[mcp_servers.{_text(server.name)}]"
    yield f"command = {_text(server.command[0])}"
    yield f"args = [{', '.join(map(_text, server.command[1:]))}]"
    if server.cwd is not None:
        yield f"cwd = {_text(server.cwd)}"
    # Otherwise it goes on without a server that did not start, or has not yet, and says nothing of it.
    yield "required = true"
    yield f"startup_timeout_sec = {float(server.start_timeout_s)}"
    yield f"tool_timeout_sec = {float(server.call_timeout_s)}"
    if server.env:
        yield f"[mcp_servers.{_text(server.name)}.env]"
        yield from (f"{_text(name)} = {_text(value)}" for name, value in server.env.items())


def _text(text: str) -> str:
    """As TOML has it: JSON's way, but for what JSON writes in two halves and for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
