"""Credentials from the command line: checked by real requests, refused before an agent starts, in no record."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyrage
import pytest
from tests.secret.codex_login import write_login

from ringfence.journal import run_dirs

Cli = Callable[..., Any]
SECRET = "hunter2/correct+horse=battery"


class Api:
    """What an API on the loopback was asked, and what it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, tuple[int, Any]] = {}
        """By path; others are 200."""
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.waits: Callable[[], None] = lambda: None


@contextmanager
def _serving() -> Iterator[Api]:
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.partition("?")[0]
            api.waits()
            api.asked.append(
                (self.command, path, {name.lower(): value for name, value in self.headers.items()})
            )
            status, document = api.answers.get(path, (200, {"data": []}))
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("location", f"{api.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # how soon it ends
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """An API of both providers that takes any credential."""
    with _serving() as served:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", served.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}/v1")
        yield served


def _error(status: int, kind: str, message: str) -> tuple[int, Any]:
    return status, {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("answer", "verdict", "code"),
    [
        ((200, {}), "ok", 0),
        (_error(429, "rate_limit_error", "slow down"), "ok", 0),
        (_error(401, "authentication_error", f"invalid x-api-key {SECRET}"), "refused", 77),
        (_error(403, "permission_error", "no"), "refused", 77),
        (_error(503, "api_error", "down"), "unreachable", 75),
        (_error(404, "not_found_error", "what"), "unclear", 75),
        ((302, {}), "unreachable", 75),
        ((401, f"<html>{SECRET}</html>"), "refused", 77),
    ],
    ids=["200", "429", "401", "403", "503", "404", "redirect", "no json"],
)
def test_doctor_tells_refused_from_unreachable_from_good(
    ringfence: Cli,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, Any],
    verdict: str,
    code: int,
):
    """By one request; a server that echoes the key does not get it onto the screen."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    api.answers = {"/v1/models": answer, "/v1/messages/count_tokens": answer}
    ended = ringfence("doctor", "--auth", "--json")
    (row,) = json.loads(ended.out)["credentials"]
    assert (row["verdict"], ended.code) == (verdict, code)
    assert SECRET not in ended.out + ended.err
    assert api.asked[0][2]["x-api-key"] == SECRET
    assert "/elsewhere" not in {path for _, path, _ in api.asked}


def test_doctor_asks_for_each_credential_as_its_clients_do(
    ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A key, a bearer token, a subscription's token, a key of OpenAI's and a ChatGPT login."""
    for name, value in {
        "ANTHROPIC_API_KEY": "key-value",
        "ANTHROPIC_AUTH_TOKEN": "bearer-value",
        "CLAUDE_CODE_OAUTH_TOKEN": "oauth-value",
        "OPENAI_API_KEY": "openai-value",
        "CODEX_AUTH_FILE": str(tmp_path / "auth.json"),
    }.items():
        monkeypatch.setenv(name, value)
    write_login(tmp_path / "auth.json", lasts_s=3600)
    ended = ringfence("doctor", "--auth")
    sent = [headers.get("x-api-key") or headers["authorization"] for _, _, headers in api.asked]
    assert sent[:4] == ["key-value", "Bearer bearer-value", "Bearer oauth-value", "Bearer openai-value"]
    assert api.asked[2][2]["anthropic-beta"] == "oauth-2025-04-20"
    assert api.asked[4][2]["chatgpt-account-id"] == "account-1"
    assert (ended.code, ended.out.count("ok ")) == (0, 5)
    assert "value" not in ended.out


def test_a_token_that_may_not_list_models_is_asked_another_question(
    ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch
):
    """A setup token is for inference alone; that is all that an agent needs."""
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", SECRET)
    api.answers = {"/v1/models": _error(403, "permission_error", "scope")}
    ended = ringfence("doctor", "--auth")
    assert ended.code == 0
    assert [(method, path) for method, path, _ in api.asked] == [
        ("GET", "/v1/models"),
        ("POST", "/v1/messages/count_tokens"),
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_restricted_key_of_openai_is_good(
    ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch, status: int
):
    """It may not list models, and that is all that an agent does not need."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    said = "You have insufficient permissions for this operation. Missing scopes: api.model.read."
    api.answers = {"/v1/models": _error(status, "invalid_request_error", said)}
    ended = ringfence("doctor", "--auth")
    assert (ended.code, "may not list models" in ended.out) == (0, True)


def test_doctor_says_when_nothing_answers(ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch):
    """That is the network's fault and no credential's."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    ended = ringfence("doctor", "--auth")
    assert (ended.code, "unreachable" in ended.out) == (75, True)


def test_doctor_says_when_a_credential_has_ended(
    ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Without asking: whoever renewed it, it was not written down."""
    login = {"claudeAiOauth": {"accessToken": SECRET, "expiresAt": 1_000_000_000_000}}
    (tmp_path / "credentials").write_text(json.dumps(login))
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN_FILE", str(tmp_path / "credentials"))
    ended = ringfence("doctor", "--auth")
    assert (ended.code, api.asked) == (77, [])
    assert "expired at 2001-09-09" in ended.out


def test_doctor_without_a_credential_names_the_ways(ringfence: Cli):
    """And ends as a run would."""
    ended = ringfence("doctor", "--auth")
    assert ended.code == 77
    for way in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "OPENAI_API_KEY",
        "secrets:",
    ):
        assert way in ended.err


def test_doctor_names_the_variable_that_holds_no_address(ringfence: Cli, monkeypatch: pytest.MonkeyPatch):
    """Two may be set, and either may be wrong."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", "moon")
    ended = ringfence("doctor", "--auth")
    assert (ended.code, "'moon' (OPENAI_BASE_URL)" in ended.err) == (2, True)


def test_doctor_says_that_a_login_has_expired(
    ringfence: Cli, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Only Codex renews its login, so the next step is named."""
    write_login(tmp_path / "auth.json")
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    ended = ringfence("doctor", "--auth")
    assert (ended.code, "run `codex login`" in ended.out) == (77, True)


def test_a_refused_credential_ends_the_run_before_the_agent(
    ringfence: Cli, api: Api, workspace: Path, monkeypatch: pytest.MonkeyPatch, events: Cli
):
    """The outcome says whose fault it is, and no agent ran."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    api.answers = {"/v1/models": _error(401, "authentication_error", f"invalid {SECRET}")}
    ended = ringfence("run", "x", "-C", workspace)
    names = [event["event"] for event in events()]
    assert (ended.code, next(each["data"]["state"] for each in events() if each["event"] == "job.ended")) == (
        77,
        "authentication",
    )
    assert "job.started" not in names
    assert SECRET not in ended.out + ended.err
    assert "ringfence doctor --auth" in ended.out + ended.err


def _journal() -> str:
    return (run_dirs()[0] / "journal.jsonl").read_text()


def test_a_credential_that_is_refused_late_leaves_no_work(
    ringfence: Cli, api: Api, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing was set up in a sandbox that was ready sooner, and what the user writes later is not the run's."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    api.answers = {"/v1/models": _error(401, "authentication_error", "no")}

    def wait() -> None:
        for name, seconds in (("sandbox.created", 4), ("command.ended", 0.5)):
            deadline = time.monotonic() + seconds
            while name not in _journal() and time.monotonic() < deadline:
                time.sleep(0.02)

    api.waits = wait
    assert ringfence("run", "x", "-C", workspace, "--setup", "touch set-up").code == 77
    (workspace / "mine").write_text("mine\n")
    assert not (workspace / "set-up").exists()
    monkeypatch.chdir(workspace)
    assert "mine" not in ringfence("diff", "last", "--stat").out
    assert ringfence("undo", "last").code == 2
    assert (workspace / "mine").exists()


def test_a_missing_credential_names_the_ways_before_a_record(ringfence: Cli, workspace: Path):
    """Nothing was begun, so nothing is recorded."""
    ended = ringfence("run", "x", "-C", workspace)
    assert (ended.code, "claude setup-token" in ended.err) == (77, True)


def test_a_secret_in_the_workspace_is_refused(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """The agent could read it there, whatever else is kept from it."""
    (workspace / "key").write_text(SECRET)
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(workspace / "key"))
    ended = ringfence("run", "x", "-C", workspace)
    assert (ended.code, "lies in the workspace" in ended.err) == (4, True)


def _source(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A reference of one kind to the secret, which is put there."""
    file = folder / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    match kind:
        case "env":
            monkeypatch.setenv("INNOCENT", SECRET)
            return "env:INNOCENT"
        case "file":
            return f"file:{file}"
        case "cmd":
            return {"cmd": ["cat", str(file)], "revoke": ["true"]}
        case "keyring":
            (folder / "filekeyring.py").write_text(
                "from keyring.backend import KeyringBackend\n"
                "class FileKeyring(KeyringBackend):\n"
                "    priority = 1\n"
                f"    def get_password(self, service, username): return open({str(file)!r}).read()\n"
                "    def set_password(self, service, username, password): ...\n"
                "    def delete_password(self, service, username): ...\n"
            )
            settings = folder / "xdg" / "python_keyring"
            settings.mkdir(parents=True)
            (settings / "keyringrc.cfg").write_text(
                f"[backend]\ndefault-keyring=filekeyring.FileKeyring\nkeyring-path={folder}\n"
            )
            monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
            return "keyring:service/me"
        case _:
            identity = pyrage.x25519.Identity.generate()
            (folder / "identity").write_text(str(identity))
            (folder / "identity").chmod(0o600)
            (folder / "s.age").write_bytes(pyrage.encrypt(SECRET.encode(), [identity.to_public()]))
            return {"age": str(folder / "s.age"), "identity": str(folder / "identity")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["env", "file", "cmd", "keyring", "age"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["view", "json"])
def test_no_secret_of_any_source_is_shown_or_kept(
    ringfence: Cli,
    workspace: Path,
    model: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    form: list[str],
    events: Cli,
):
    """As it stands, base64, percent-encoded; said by the model, printed by a tool, asked for by the user."""
    forms = [SECRET, base64.b64encode(SECRET.encode()).decode(), quote(SECRET, safe="")]
    said = " ".join(forms)
    call = {"name": "shell", "input": {"command": f"echo '{said}'; false", "reasoning": said}}
    url = model({"text": f"so {said}!", "tools": [call]}, {"text": f"bye {said}"})
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    reference = _source(kind, tmp_path, monkeypatch)
    _configure({"secrets": {"ANTHROPIC_AUTH_TOKEN": reference}})
    ended = ringfence("run", f"use {said}", "-C", workspace, *form)
    run = run_dirs()[0]
    kept = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file()).decode("utf-8", "replace")
    assert ended.code == 9, ended.err
    assert [one for one in forms if one in ended.out + ended.err + kept] == []
    told = [event["event"] for event in events()]
    assert ("secret.leased" in told, "secret.revoked" in told) == (True, True)


def _configure(settings: Any) -> Path:
    from ringfence.config.paths import user_config_file

    file = user_config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))
    return file
