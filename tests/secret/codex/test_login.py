"""A ChatGPT login that many processes use: renewed once, written whole, and never lost to a kill."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.secret.codex.oauth import TokenServer, token_server, write_login

from ringfence.errors import AuthenticationFailed, InfrastructureFault, UsageError
from ringfence.secret.codex.file import read_login_file
from ringfence.secret.codex.login import CodexLogin

READ = """
import os, sys, anyio
from pathlib import Path
from ringfence.errors import RingfenceError
from ringfence.secret.codex.login import CodexLogin
async def main():
    try:
        print((await CodexLogin(Path(sys.argv[1]), os.environ, "the login").read()).text)
    except RingfenceError as error:
        sys.exit(f"{type(error).__name__}: {error}")
anyio.run(main)
"""


@pytest.fixture
def server() -> Iterator[TokenServer]:
    """A token endpoint."""
    with token_server() as state:
        yield state


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A login whose access token has ended."""
    write_login(tmp_path / "auth.json")
    return tmp_path / "auth.json"


def _login(file: Path, server: TokenServer) -> CodexLogin:
    return CodexLogin(file, {**os.environ, "CODEX_REFRESH_TOKEN_URL_OVERRIDE": server.url}, "the login")


def _process(file: Path, server: TokenServer) -> "subprocess.Popen[str]":
    environ = {**os.environ, "CODEX_REFRESH_TOKEN_URL_OVERRIDE": server.url}
    command = [sys.executable, "-c", READ, str(file)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _content(file: Path) -> bytes:
    return file.read_bytes()


def _mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def _write(file: Path, text: str) -> None:
    file.write_text(text)


def _tokens(file: Path) -> dict[str, str]:
    found = json.loads(_content(file))["tokens"]
    assert isinstance(found, dict)
    return found


async def test_a_login_that_is_good_is_not_renewed(file: Path, server: TokenServer):
    """Nothing is asked and nothing written."""
    write_login(file, lasts_s=3600)
    before = _content(file)
    value = await _login(file, server).read()
    assert (value.text, value.account_id) == (_tokens(file)["access_token"], "account-1")
    assert (server.asked, _content(file)) == ([], before)


@pytest.mark.slow
async def test_a_login_that_has_ended_is_renewed_and_kept(file: Path, server: TokenServer):
    """The new refresh token is the only one that works from now on, so it is in the file when we have the other."""
    value = await _login(file, server).read()
    assert value.expires_at is not None
    assert value.expires_at > datetime.now(UTC)
    assert _tokens(file)["access_token"] == value.text
    assert _tokens(file)["refresh_token"] == server.good == "refresh-1"
    assert json.loads(_content(file))["last_refresh"] > "2026-01-01T00:00:00Z"


@pytest.mark.slow
async def test_what_is_sent_is_what_codex_sends(file: Path, server: TokenServer):
    """It is the login of the Codex CLI, so it is renewed in its name."""
    await _login(file, server).read()
    assert [(one["grant_type"], one["refresh_token"], one["client_id"][:4]) for one in server.asked] == [
        ("refresh_token", "refresh-0", "app_")
    ]


@pytest.mark.slow
async def test_the_renewed_file_is_its_owners_alone(file: Path, server: TokenServer):
    """Whatever the mode before and the umask now; and nothing else is left beside it but the lock."""
    os.chmod(file, 0o644)  # noqa: PTH101
    before = os.umask(0)
    try:
        await _login(file, server).read()
    finally:
        os.umask(before)
    assert _mode(file) == 0o600
    assert {one.name for one in file.parent.iterdir()} == {"auth.json", ".auth.json.ringfence-lock"}


@pytest.mark.slow
async def test_a_link_to_the_file_stays_a_link(file: Path, server: TokenServer, tmp_path: Path):
    """What it leads to is renewed, for all who use it."""
    (tmp_path / "link").symlink_to(file)
    value = await _login(tmp_path / "link", server).read()
    assert (tmp_path / "link").is_symlink()
    assert _tokens(file)["access_token"] == value.text


@pytest.mark.slow
def test_many_processes_at_once_renew_it_once(file: Path, server: TokenServer):
    """The others wait, and take what the one has got: a second use of the token would end the login."""
    processes = [_process(file, server) for _ in range(12)]
    ends = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0] * 12, ends
    assert {out.strip() for out, _ in ends} == {_tokens(file)["access_token"]}
    assert [one["refresh_token"] for one in server.asked] == ["refresh-0"]


@pytest.mark.slow
def test_a_kill_in_the_middle_loses_nothing(file: Path, server: TokenServer):
    """The token is spent and the answer on its way when the asker is killed: it is written down all the same."""
    server.hold.clear()
    killed = _process(file, server)
    assert server.spent.wait(60)
    killed.kill()
    killed.communicate()
    next_one = _process(file, server)
    server.hold.set()
    out, err = next_one.communicate(timeout=100)
    assert (next_one.returncode, out.strip()) == (0, _tokens(file)["access_token"]), err
    assert [one["refresh_token"] for one in server.asked] == ["refresh-0"]


@pytest.mark.slow
def test_a_kill_of_the_renewing_process_itself_is_a_clear_end(file: Path, server: TokenServer):
    """Then the answer is lost, and nothing can bring it back: the next one frees the lock's waiters and says so."""
    server.hold.clear()
    asker = _process(file, server)
    assert server.spent.wait(60)
    asker.kill()
    asker.communicate()
    for pid in _renewing(file):
        os.kill(pid, signal.SIGKILL)
    server.hold.set()
    next_one = _process(file, server)
    _, err = next_one.communicate(timeout=100)
    assert next_one.returncode == 1
    assert "AuthenticationFailed" in err
    assert "refresh_token_reused" in err
    assert "codex login" in err
    assert json.loads(_content(file))["tokens"]["refresh_token"] == "refresh-0"


def _renewing(file: Path) -> list[int]:
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ringfence.secret.codex.renewal" in words and str(file).encode() in words:
            found.append(int(place.name))
    assert found
    return found


@pytest.mark.slow
async def test_a_login_made_anew_meanwhile_is_not_overwritten(file: Path, server: TokenServer):
    """`codex login` knows nothing of our lock; what it wrote is newer than any answer."""
    server.on_spent = lambda: write_login(file, number=7, lasts_s=3600)
    value = await _login(file, server).read()
    assert _tokens(file)["refresh_token"] == "refresh-7"
    assert value.text == _tokens(file)["access_token"]


@pytest.mark.slow
async def test_a_login_renewed_by_another_program_is_taken_over(file: Path, server: TokenServer):
    """It has used the token a moment before us, so ours is refused, and its answer is in the file."""
    server.good = "refresh-8"
    server.on_spent = lambda: write_login(file, number=8, lasts_s=3600)
    value = await _login(file, server).read()
    assert value.text == _tokens(file)["access_token"]


async def test_a_spent_login_is_a_clear_end(file: Path, server: TokenServer):
    """It says what to do, and shows no token."""
    server.good = "refresh-5"
    with pytest.raises(AuthenticationFailed, match=r"refresh_token_reused\); run `codex login`") as refused:
        await _login(file, server).read()
    assert "refresh-0" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        (503, b""),
        *(
            pytest.param(answer, marks=pytest.mark.slow)
            for answer in ((200, b"not json"), (200, b"[]"), (302, b"{}"), (200, b"[" * 300_000))
        ),
    ],
    ids=["down", "text", "list", "redirect", "endless"],
)
async def test_an_endpoint_that_is_down_is_another_fault(
    file: Path, server: TokenServer, answer: tuple[int, bytes]
):
    """Nothing is wrong with the login, and nothing is written."""
    before = _content(file)
    server.answer = answer
    with pytest.raises(InfrastructureFault, match="try again later"):
        await _login(file, server).read()
    assert _content(file) == before


@pytest.mark.slow
async def test_while_the_old_token_is_good_a_failure_is_none(file: Path, server: TokenServer):
    """Some minutes are left, and the next one tries again."""
    write_login(file, lasts_s=120)
    server.answer = (503, b"")
    assert (await _login(file, server).read()).text == _tokens(file)["access_token"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
async def test_where_nothing_can_be_written_nothing_is_spent(file: Path, server: TokenServer):
    """A refresh token whose answer could not be kept is not sent."""
    file.parent.chmod(0o500)
    try:
        with pytest.raises(InfrastructureFault):
            await _login(file, server).read()
    finally:
        file.parent.chmod(0o700)
    assert server.asked == []


@pytest.mark.parametrize("url", ["http://example.com/token", "ftp://example.com", "example.com"])
async def test_a_refresh_token_goes_over_tls(file: Path, url: str):
    """It is worth the whole login."""
    with pytest.raises(UsageError, match="https"):
        await CodexLogin(file, {"CODEX_REFRESH_TOKEN_URL_OVERRIDE": url}, "the login").read()


async def test_a_key_in_the_file_is_a_key(file: Path, server: TokenServer):
    """`codex login --with-api-key` keeps it there; it is never renewed."""
    _write(file, '{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-hunter2"}')
    value = await _login(file, server).read()
    assert (value.text, value.is_key, value.expires_at) == ("sk-hunter2", True, None)


def test_a_lent_copy_cannot_be_renewed(file: Path):
    """All else is in it, so the program works until the token ends."""
    lent = json.loads(read_login_file(file, "it").lent())
    assert lent.pop("tokens") == {**_tokens(file), "refresh_token": ""}
    assert lent == {key: value for key, value in json.loads(_content(file)).items() if key != "tokens"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(
        st.sampled_from(["tokens", "access_token", "OPENAI_API_KEY", "last_refresh", "account_id"]), below, max_size=4),
    max_leaves=8))  # fmt: skip
def test_any_file_is_a_login_or_a_clear_error(tmp_path: Path, document: object):
    """Whatever JSON it holds."""
    file = tmp_path / "any.json"
    file.touch(0o600)
    file.write_text(json.dumps(document))
    try:
        text = read_login_file(file, "it").value("it").text
    except AuthenticationFailed as exc:
        text = str(exc)
    assert text
