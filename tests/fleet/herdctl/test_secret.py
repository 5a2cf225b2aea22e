"""Secrets in herdctl files: variables become references to secrets, and plain text is refused."""

import pytest
from tests.fleet.herdctl.conftest import Read, outcome
from tests.fleet.herdctl.keys import AGENT, Key, lay

from ringfence.errors import ConfigurationError

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
"""A text of the form of a real token."""

TEXTS = [
    key
    for key in AGENT
    if key.path.rpartition(".")[2]
    in ("description", "system_prompt", "default_prompt", "model", "prompt", "command", "url", "MODE")
    and key.path not in ("session.model", "mcp_servers.x.url")
]
PLAIN = {
    "argument": ("mcp_servers.x", {"command": "server", "args": ["--token", "abcdefgh"]}),
    "argument-joined": ("mcp_servers.x", {"command": "server", "args": ["--api-key=abcdefgh"]}),
    "header": (
        "hooks.on_error.0",
        {"type": "webhook", "url": "https://x.example", "headers": {"X-Api-Key": "abc"}},
    ),
    "default": (
        "hooks.on_error.0",
        {"type": "webhook", "url": "https://x.example", "headers": {"Authorization": "Bearer ${T:-abc}"}},
    ),
    "slack": (
        "hooks.on_error.0",
        {"type": "webhook", "url": "https://hooks.slack.com/services/T1/B1/xyzxyz"},
    ),
    "query": ("hooks.on_error.0", {"type": "webhook", "url": "https://x.example/?access_token=abcdefgh"}),
    "password": ("hooks.on_error.0", {"type": "webhook", "url": "https://me:hunter2@x.example/"}),
    "shell": (
        "hooks.after_run.0",
        {"type": "shell", "command": "curl -H 'Authorization: Bearer abcdefgh' x"},
    ),
    "variable": ("hooks.on_error.0", {"type": "discord", "channel_id": "1", "bot_token_env": TOKEN}),
    "label": ("docker.labels", {"x": TOKEN}),
    "mount": ("docker.volumes", [f"/data/{TOKEN}:/data"]),
}


@pytest.mark.parametrize("key", TEXTS, ids=lambda key: key.path)
def test_tokens_are_refused_wherever_they_stand(key: Key):
    """A token in a text that would be converted is refused at its place, and the error does not repeat it."""
    values: dict[str, object] = {}
    key.put(values)
    lay(values, key.path, f"use {TOKEN} for it")
    with pytest.raises(
        ConfigurationError, match=r"a\.yaml:1:\d+: .*a secret stands here in plain text"
    ) as caught:
        outcome({}, values)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("default", ["none", "", "NULL"])
def test_a_variable_with_a_placeholder_is_a_secret(default: str):
    """A header whose variable defaults to a placeholder becomes a reference to a secret; a note names the default."""
    hook = {
        "type": "webhook",
        "url": "https://x.example/",
        "headers": {"Authorization": f"Bearer ${{TOKEN:-{default}}}", "X-Team": "${TEAM:-none}"},
    }
    values: dict[str, object] = {}
    lay(values, "hooks.on_error.0", hook)
    found = outcome({}, values)
    (converted,) = found.agents["a"]["hooks"]["on_failure"]
    assert converted["headers"] == {"Authorization": "Bearer ${secret:TOKEN}", "X-Team": "${TEAM:-none}"}
    assert found.named["hooks.on_error.0.headers.Authorization"] == "changed"


def test_a_default_that_can_be_a_secret_is_refused():
    """A header's default is in the file, so unless it is a placeholder it is refused as a secret."""
    hook = {
        "type": "webhook",
        "url": "https://x.example/",
        "headers": {"Authorization": "${T:-hunter2-hunter2}"},
    }
    values: dict[str, object] = {}
    lay(values, "hooks.on_error.0", hook)
    with pytest.raises(ConfigurationError):
        outcome({}, values)


@pytest.mark.parametrize("name", PLAIN)
def test_what_must_be_secret_is_refused_in_plain_text(name: str):
    """Secrets in headers, addresses, arguments and names of variables are refused, and errors do not repeat them."""
    path, value = PLAIN[name]
    values: dict[str, object] = {}
    lay(values, path, value)
    with pytest.raises(ConfigurationError, match=r"a\.yaml:1:\d+: ") as caught:
        outcome({}, values)
    for secret in ("abcdefgh", "hunter2", "xyzxyz", TOKEN):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("docker.env", {"GITHUB_TOKEN": TOKEN}),
        ("docker.env", {"OTHER": "${DB_PASSWORD}"}),
        ("mcp_servers.x", {"command": "server", "env": {"API_KEY": TOKEN}}),
        ("mcp_servers.x", {"command": "server", "args": ["--token", "${API_TOKEN}"]}),
        (
            "mcp_servers.x",
            {"type": "http", "url": "https://x", "headers": {"Authorization": f"Bearer {TOKEN}"}},
        ),
        ("docker.host_config", {"Env": [TOKEN]}),
        ("unknown", TOKEN),
        (TOKEN, "unknown"),
    ],
    ids=["env", "variable", "server", "argument", "remote", "raw", "unknown", "key"],
)
def test_secrets_do_not_come_inside(path: str, value: object):
    """Keys that would bring a secret into the sandbox are left out and named, and no message contains the secret."""
    values: dict[str, object] = {}
    lay(values, path, value)
    found = outcome({}, values)
    assert "left_out" in found.named.values()
    assert TOKEN not in str(found)
    assert "${" not in str(found.agents)


def test_variables_of_hooks_become_secrets(read: Read):
    """Variables for tokens and addresses in hooks and work sources become secrets, which are read when used."""
    fleet = read(
        "agents: [{path: a.yaml}]",
        a="name: a\nhooks:\n  on_error:\n    - {type: webhook, url: '${URL}', headers: "
        "{Authorization: 'Bearer ${TOK}'}}\n"
        "    - {type: discord, channel_id: 12, bot_token_env: BOT}\n    - {type: slack, channel_id: C1}\n"
        "work_source: {type: github, repo: o/r}\n",
    )
    settings = fleet.agents["a"].settings
    assert {name: secret.env for name, secret in settings.secrets.items()} == {
        name: name for name in ("URL", "TOK", "BOT", "SLACK_WEBHOOK_C1", "GITHUB_TOKEN")
    }
    said = settings.model_dump(mode="json")
    first, second, third = said["hooks"]["on_failure"]
    assert (first["url"], first["headers"]) == ("${secret:URL}", {"Authorization": "Bearer ${secret:TOK}"})
    assert second["headers"] == {"Authorization": "Bot ${secret:BOT}"}
    assert third["url"] == "${secret:SLACK_WEBHOOK_C1}"
    assert said["triggers"]["github"]["token"] == "${secret:GITHUB_TOKEN}"
