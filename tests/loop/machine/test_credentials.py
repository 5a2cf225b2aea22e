"""Credentials of a loop's roles: asked about once and before anything is begun."""

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

from ringfence.cli.settings import load_settings
from ringfence.config import Effective
from ringfence.errors import AuthenticationFailed
from ringfence.loop.credentials import check_credentials, with_second_writer
from ringfence.loop.settings import LoopSettings

pytestmark = pytest.mark.anyio
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-api03-zqzq7x-5e1f0c", "OPENAI_API_KEY": "sk-zqzq7x-77aa0d"}
BOTH = LoopSettings.model_validate(
    {
        "roles": {
            "test_writer": {"runtime": "codex-cli"},
            "implementor": {"ladder": [{}, {"runtime": "codex-cli"}]},
        }
    }
)


@dataclass
class Api:
    """An API of both providers."""

    url: str = ""
    refused: str = ""
    """A credential that it does not take."""
    asked: list[str] = field(default_factory=list)
    """The credential of each request."""

    @property
    def environment(self) -> dict[str, str]:
        """What leads to it."""
        return {"ANTHROPIC_BASE_URL": self.url, "OPENAI_BASE_URL": f"{self.url}/v1"}


@pytest.fixture
def api() -> Iterator[Api]:
    """One that takes all."""
    served = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("x-api-key") or self.headers["authorization"].removeprefix("Bearer ")
            served.asked.append(given)
            body = json.dumps({"data": []}).encode()
            self.send_response(401 if given == served.refused else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def effective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api) -> Effective:
    """A configuration with a key for each provider, and no client anywhere."""
    for name in ("state", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("RINGFENCE_MODEL", raising=False)
    for name, value in (KEYS | api.environment).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "work").mkdir()
    return load_settings(tmp_path / "work")


@pytest.mark.slow
def test_a_wrong_key_is_told_before_anything_is_begun(tmp_path: Path, api: Api):
    """77 after one question, whatever the number of roles; there is no loop."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    api.refused = KEYS["ANTHROPIC_API_KEY"]
    project.environment |= KEYS | api.environment
    ended = project.run("loop", "start", "--prd", str(project.prd), "--model", "claude-sonnet-5-5")
    assert ended.returncode == 77, ended
    assert "rejected the api_key credential" in ended.stderr
    assert api.refused not in ended.stderr
    assert api.asked == [api.refused]
    assert json.loads(project.run("loop", "ls", "--json").stdout)["loops"] == []
    assert not (project.root / "state" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--role", "judge=codex-cli:m"], 78, ["role judge", "is not installed", "--role judge=RUNTIME"]),
        (["--role", "reviewer=codex-cli:m"], 78, ["role reviewer", "is not installed", "--image"]),
        (["--sandbox", "nonesuch"], 2, ["--sandbox: 'nonesuch' is not one of"]),
        (["--sandbox", "nonesuch", "--goal", "a piece", "--yes"], 2, ["--sandbox: 'nonesuch' is not"]),
    ],
    ids=["judge", "reviewer", "sandbox", "goal"],
)
def test_who_cannot_work_is_told_before_anything_is_begun(
    tmp_path: Path, words: list[str], code: int, said: list[str]
):
    """A client that is missing, or a fence that nobody knows: there is no loop, and no agent has run."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(git)
    project.environment |= {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    stories = [] if "--goal" in words else ["--prd", str(project.prd)]
    ended = project.run("loop", "start", *stories, "--model", f"scripted:{project.script}", *words)
    assert (ended.returncode, [each for each in said if each not in ended.stderr]) == (code, []), ended
    assert "--cli-path" not in ended.stderr
    assert json.loads(project.run("loop", "ls", "--json").stdout)["loops"] == []
    assert not (project.root / "state" / "runs").exists()


@pytest.mark.parametrize("role", ["judge", "reviewer"])
def test_a_judge_with_an_argument_that_permits_it_to_run_programs_is_refused(tmp_path: Path, role: str):
    """Whoever judges or reviews by codex has no shell; the refusal names the role, and no agent has run."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    file = project.root / "config" / "ringfence" / "ringfence.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"client": {"args": ["--dangerously-bypass-approvals-and-sandbox"]}}))
    ended = project.start("--role", f"{role}=codex-cli:m")
    assert ended.returncode == 2, ended
    assert f"role {role}: the argument '--dangerously-bypass-approvals-and-sandbox'" in ended.stderr
    assert "it would permit what tools.deny denies; leave it out" in ended.stderr
    assert not (project.root / "state" / "runs").exists()


async def test_a_check_tells_who_cannot_work(tmp_path: Path):
    """`loop check` looks at what files say of roles and fences."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    project.environment |= {"HOME": str(tmp_path)}
    project.configure(roles={"judge": {"sandbox": "nonesuch"}})
    ended = project.run("loop", "check", str(project.prd))
    assert (ended.returncode, "roles.judge.sandbox: 'nonesuch' is not one of" in ended.stderr) == (
        78, True,
    ), ended  # fmt: skip


async def test_each_credential_is_asked_about_once(effective: Effective, api: Api, tmp_path: Path):
    """That of each provider, though each is used by several roles and attempts."""
    await check_credentials(effective, BOTH, tmp_path / "work", print)
    assert sorted(api.asked) == sorted(KEYS.values())


async def test_only_what_is_used_is_asked_about(effective: Effective, api: Api, tmp_path: Path):
    """A provider that no role asks is left alone."""
    await check_credentials(effective, LoopSettings(), tmp_path / "work", print)
    assert api.asked == [KEYS["ANTHROPIC_API_KEY"]]


async def test_a_later_attempt_counts(effective: Effective, api: Api, tmp_path: Path):
    """A key that only the second attempt would use is known to be wrong at the start."""
    api.refused = KEYS["OPENAI_API_KEY"]
    ladder = {"roles": {"implementor": {"ladder": [{}, {"runtime": "codex-cli"}]}}}
    with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
        await check_credentials(effective, LoopSettings.model_validate(ladder), tmp_path / "work", print)


async def test_a_second_provider_without_its_client_writes_no_tests(effective: Effective, tmp_path: Path):
    """Nobody is named who could not work."""
    told = list[str]()
    settings = await with_second_writer(effective, LoopSettings(), tmp_path / "work", told.append)
    assert (settings, told) == (LoopSettings(), [])
