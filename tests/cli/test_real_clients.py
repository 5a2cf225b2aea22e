"""Credentials put inside, with the clients that they are for: the real CLIs, in the versions of the image `agents`."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.secret.codex_login import write_login

from ringfence.config.paths import user_config_file

Cli = Callable[..., Any]
pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(600)]
LISTS = Path(__file__).parents[2] / "src/ringfence/sandbox/docker/image/context/agents"
INSIDE = "/home/agent/clients"
SECRET = "sk-ant-api03-hunter2-correct-horse"


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The CLIs that `TEST_CLIENTS` names, else installed by npm without running any script of theirs."""
    if named := os.environ.get("TEST_CLIENTS"):
        yield Path(named, "node_modules")
        return
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    place = tmp_path_factory.mktemp("clients")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LISTS / name, place)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=place,
        check=True,
        capture_output=True,
    )
    yield place / "node_modules"
    shutil.rmtree(place)


@pytest.fixture
def inside(clients: Path) -> None:
    """Settings that show the CLIs inside and put credentials there."""
    mount = {"source": str(clients), "target": INSIDE}
    settings = {"auth": "inject", "unsafe": ["auth_inject"], "sandbox": {"mounts": [mount]}}
    user_config_file().parent.mkdir(parents=True, exist_ok=True)
    user_config_file().write_text(json.dumps(settings))


def _program(clients: Path, pattern: str) -> str:
    (found,) = clients.glob(pattern)
    return f"{INSIDE}/{found.relative_to(clients)}"


@pytest.mark.usefixtures("inside")
def test_claude_works_with_the_injected_key(
    start: Cli, workspace: Path, clients: Path, model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """As the variable that it reads."""
    url = model({"text": "hello from the script"})
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    variables = (f"ANTHROPIC_BASE_URL={url}", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
    process = start(
        "exec", "-C", workspace, "--forward", urlsplit(url).netloc, *(f"--env={each}" for each in variables),
        "--", _program(clients, "@anthropic-ai/claude-code-linux-*[!l]/claude"),
        "-p", "hi", "--model", "claude-sonnet-5-5",
    )  # fmt: skip
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out.decode().strip()) == (0, "hello from the script"), err.decode()


@pytest.mark.usefixtures("inside")
def test_codex_works_with_the_injected_login(
    start: Cli,
    workspace: Path,
    clients: Path,
    model: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    """As the file that it reads, without a refresh token; the back end of a real login is reached by nobody here."""
    url = model({"text": "hello from the script"})
    _write_real_login(tmp_path / "auth.json")
    monkeypatch.setenv("CODEX_AUTH_FILE", str(tmp_path / "auth.json"))
    provider = f'{{name="x",base_url="{url}/v1",wire_api="responses",requires_openai_auth=true}}'
    settings = ("model_provider=x", f"model_providers.x={provider}", "features.plugins=false",
                "analytics.enabled=false", "features.apps=false",
                "features.enable_request_compression=false")  # fmt: skip
    codex = _program(clients, "@openai/codex-linux-*/vendor/*/bin/codex")
    command = [
        codex,
        "exec",
        "--skip-git-repo-check",
        "-m",
        "gpt-5.5",
        *(f"-c{each}" for each in settings),
        "hi",
    ]
    process = start("exec", "-C", workspace, "--forward", urlsplit(url).netloc, "--", *command)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out.decode().strip()) == (0, "hello from the script"), err.decode()


def _write_real_login(file: Path) -> None:
    """With tokens that Codex can read: it looks for its own claims in them."""
    write_login(file, lasts_s=7200)
    claims = {
        "exp": int(time.time()) + 7200,
        "email": "me@example.com",
        "https://api.openai.com/auth": {
            "chatgpt_plan_type": "pro",
            "chatgpt_account_id": "account-1",
            "chatgpt_user_id": "user-1",
        },
    }
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    token = f"eyJhbGciOiJub25lIn0.{body}.c2ln"
    document = json.loads(file.read_text())
    document["tokens"] |= {"id_token": token, "access_token": token}
    document["last_refresh"] = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"
    file.write_text(json.dumps(document))
