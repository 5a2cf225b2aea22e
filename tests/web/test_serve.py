"""`ringfence serve`: the address it listens on, and the dashboard without a fleet."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from starlette.types import ASGIApp
from tests.web.dashboard import running_server
from tests.web.example import Example, open_daemon

from ringfence.fleet.api.access import TokenAccess
from ringfence.fleet.api.app import create_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.client import socket_path
from ringfence.fleet.store.tokens import Tokens

pytestmark = pytest.mark.slow
Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without a fleet."""
    homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "CACHE", "DATA")}
    return {**os.environ, **homes, "RINGFENCE_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}


@contextmanager
def serving(environment: dict[str, str], directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command during the block, then end it with Ctrl-C."""
    command = [sys.executable, "-m", "ringfence", "serve", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=directory
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _link(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_shows_the_runs_of_a_machine_without_a_fleet(environment: dict[str, str], tmp_path: Path) -> None:
    """The printed link signs in, and SIGUSR1 prints the next; Ctrl-C exits with code 0 and leaves no socket."""
    with serving(environment, tmp_path) as process:
        link = _link(process)
        with httpx2.Client() as client:
            assert client.get(link).status_code == 200
            page = client.get(httpx2.URL(link).join("/runs"))
            assert page.status_code == 200
            assert "No runs yet" in page.text
            assert client.get(httpx2.URL(link).join("/jobs")).status_code == 200
        process.send_signal(signal.SIGUSR1)
        following = _link(process)
        assert following.startswith(link.partition("=")[0])
        assert following != link
    assert process.returncode == 0
    assert not socket_path(tmp_path / "state").exists()


def test_enter_prints_the_next_link(environment: dict[str, str], tmp_path: Path) -> None:
    """Enter in the terminal of the command prints one more link, which replaces the first one."""
    user_side, terminal = os.openpty()
    program = [sys.executable, "-m", "ringfence", "serve"]
    started = ["setsid", "--ctty", "--wait", *program]
    with subprocess.Popen(
        started, stdin=terminal, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        os.close(terminal)
        first = httpx2.URL(_link(process))
        os.write(user_side, b"\n")
        second = httpx2.URL(_link(process))
        assert httpx2.get(first).status_code == 403
        assert httpx2.get(second).status_code == 200
        os.write(user_side, b"\x03")
        assert process.wait(30) == 0
    os.close(user_side)


def test_it_outlives_its_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    """After the terminal is closed the dashboard still serves, and SIGUSR1 prints the next link."""
    user_side, terminal = os.openpty()
    program = [sys.executable, "-m", "ringfence", "serve"]
    with subprocess.Popen(
        program, stdin=terminal, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        os.close(terminal)
        _link(process)
        os.close(user_side)
        process.send_signal(signal.SIGUSR1)
        assert httpx2.get(_link(process)).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_open_keeps_the_link_out_of_arguments(
    environment: dict[str, str], tmp_path: Path, browser: Browser
) -> None:
    """`--open` gives the browser a private file, which signs in; the token is in no argument of a process."""
    program, seen = tmp_path / "browser", tmp_path / "seen"
    os.mkfifo(seen)
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    program.chmod(0o755)
    with serving({**environment, "BROWSER": f"{program} %s"}, tmp_path, "--open") as process:
        link = httpx2.URL(_link(process))
        opened = seen.read_text().strip()
        assert opened.startswith("file:///")
        assert link.params["token"] not in opened
        file = Path(httpx2.URL(opened).path)
        assert file.stat().st_mode & 0o777 == 0o600
        context = browser.new_context()
        page = context.new_page()
        page.goto(opened)
        expect(page).to_have_url(str(link.join("/runs")))
        expect(page.locator("h1")).to_have_text("Runs")
        context.close()
    assert not file.exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80"])
def test_it_listens_for_other_machines_only_by_request(
    environment: dict[str, str], tmp_path: Path, address: str
) -> None:
    """Any address but loopback is refused, with the option that allows it."""
    command = [sys.executable, "-m", "ringfence", "serve", "--address", address]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr
    assert address in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "127.0.0.1"], "HOST:PORT"),
        (["--address", "127.0.0.1:99999"], "HOST:PORT"),
        (["--server", "http://127.0.0.1:9"], "RINGFENCE_TOKEN"),
    ],
    ids=["no port", "no such port", "no token"],
)
def test_wrong_options_are_said(
    environment: dict[str, str], tmp_path: Path, options: list[str], words: str
) -> None:
    """For wrong or missing options one line says what is needed."""
    command = [sys.executable, "-m", "ringfence", "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_behind_a_proxy_the_link_has_its_name_and_cookies_are_for_tls(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """With --allow-remote the dashboard accepts that host name, and its cookie is only sent over TLS."""
    with serving(
        environment, tmp_path, "--address", "127.0.0.1:0", "--allow-remote", "fleet.example.com"
    ) as process:
        link = httpx2.URL(_link(process))
        assert (link.scheme, link.host) == ("https", "fleet.example.com")
        port = _port_of(process.pid)
        answer = httpx2.get(
            f"http://127.0.0.1:{port}{link.raw_path.decode()}", headers={"Host": "fleet.example.com"}
        )
        assert answer.status_code == 200
        assert "secure" in answer.headers["set-cookie"].lower()


def test_it_shows_the_fleet_of_another_machine(
    environment: dict[str, str], tmp_path: Path, example: Example
) -> None:
    """With `--server` and a token it shows that fleet's jobs, and refuses actions outside the token's scope."""
    tokens: dict[str, str] = {"wrong": "rft_wrong"}

    async def open_api() -> ASGIApp:
        daemon = await open_daemon(example)
        store = Tokens(daemon.database)
        tokens["right"] = await store.create("anna", scope="read")
        return TokenAccess(
            create_app(ApiContext.of_daemon(daemon)), daemon.database, hosts=["127.0.0.1"], log=daemon.log
        )

    with running_server(open_api) as url:
        for name, status in (("right", 200), ("wrong", 401)):
            variables = {**environment, "RINGFENCE_TOKEN": tokens[name]}
            with serving(variables, tmp_path, "--server", url) as process, httpx2.Client() as client:
                link = httpx2.URL(_link(process))
                client.get(link)
                page = client.get(link.join("/jobs"))
                assert page.status_code == status
                assert ("Wait for a worker" if name == "right" else "the access token is wrong") in page.text
                action = link.join(f"/jobs/{example.live}/cancel")
                refused = client.post(action, headers={"X-Ringfence": "page"})
                assert refused.status_code == (403 if name == "right" else 401)


def _port_of(process: int) -> int:
    """Return the port on which a process listens."""
    for table in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
        words = table.split()
        if words[3] == "0A":
            inode = f"socket:[{words[9]}]"
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                if str(descriptor.readlink()) == inode:
                    return int(words[1].rpartition(":")[2], 16)
    raise AssertionError("it does not listen")
