"""Commands with `--server`: the same as on the fleet's own machine, with a token."""

from pathlib import Path

import pytest
from tests.fleet.fleet_files import FleetFiles
from tests.ports import kept_port

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.client import open_client


@pytest.mark.slow
@pytest.mark.any_user  # requests on loopback; others are tried as both users
def test_commands_are_equal_by_a_server(crew: FleetFiles, tmp_path: Path):
    """Through a server, lists, jobs, logs and status are the same, and commands change the same."""
    script = crew.script("well", {"tools": [{"run": "echo x > new.txt"}]}, {"text": "done"})
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}, "run": {"model": script}}
    agent["schedules"] = {"daily": {"cron": "@daily"}}
    with kept_port() as port:
        crew.write(
            fleet={"name": "c", "drain": "1s", "timezone": "UTC", "api": {"address": f"127.0.0.1:{port}"}},
            agents={"a": agent},
        )
        crew.up()
        token = crew.does("fleet", "token", "create", "laptop", "--scope", "admin").out.strip()
        job = crew.ends(crew.trigger("a"))["id"]
        server = ["--server", f"http://127.0.0.1:{port}"]
        remote = FleetFiles(tmp_path, {"RINGFENCE_TOKEN": token})
        for words in (
            ["job", "ls"],
            ["job", "ls", "--json", "--since", "1h", "--text", "DO IT"],
            ["job", "show", job, "--json"],
            ["job", "logs", job],
            ["job", "logs", "--follow", job],
            ["job", "diff", job],
            ["fleet", "status"],
            ["fleet", "agents", "ls", "--json"],
            ["fleet", "schedules", "ls"],
            ["fleet", "workers", "ls"],
            ["inbox", "ls"],
        ):
            here, there = crew.does(*words), remote.does(*words, *server)
            assert there.out == here.out, words
            assert here.out or "inbox" in words
        second = remote.run("fleet", "trigger", "a", "--wait", "--json", *server)
        assert (second.code, second.json["state"]) == (9, "unverified")
        again = remote.does("job", "retry", job, *server).out.strip()
        assert [line.split()[0] for line in crew.does("job", "ls", "--parent", job).out.splitlines()[1:]] == [
            again
        ]
        crew.ends(again)
        remote.does("job", "rm", again, *server)
        assert crew.run("job", "show", again).code == 2
        remote.does("fleet", "schedules", "pause", "a/daily", *server)
        assert "paused" in crew.does("fleet", "schedules", "ls").out
        wrong = FleetFiles(tmp_path / "wrong", {"RINGFENCE_TOKEN": "rft_wrong"}).run("job", "ls", *server)
        assert (wrong.code, "the access token is wrong or has expired" in wrong.err) == (77, True)
        crew.down()
        away = remote.run("job", "ls", *server)
        assert (away.code, "does not answer" in away.err) == (75, True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RINGFENCE_TOKEN", raising=False)
    (tmp_path / "ringfence").mkdir()
    return tmp_path / "ringfence"


@pytest.mark.parametrize(
    "url",
    [
        "fleet.example",
        "ftp://fleet.example",
        "https://",
        "https://me:secret@fleet.example",
        "https://x:port",
        "https://x?q",
    ],
)
def test_an_address_that_is_none_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, url: str):
    """A value of `--server` that is no server address is refused."""
    monkeypatch.setenv("RINGFENCE_TOKEN", "rft_x")
    with pytest.raises(UsageError, match="is not the address of a server"):
        open_client(url)


def test_a_token_does_not_travel_in_plain_text(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Without TLS only servers on this machine are accepted, so that no token is sent in plain text."""
    monkeypatch.setenv("RINGFENCE_TOKEN", "rft_x")
    with pytest.raises(UsageError, match="in plain text"):
        open_client("http://fleet.example")
    assert open_client("http://127.0.0.1:1").server is not None


def test_a_token_of_a_file_is_the_users_alone(home: Path):
    """The token comes from a file that only its owner can read; without one the error says how to get it."""
    with pytest.raises(UsageError, match="fleet token create"):
        open_client("https://fleet.example")
    file = home / "token"
    file.write_text("rft_file\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        open_client("https://fleet.example")
    file.chmod(0o600)
    server = open_client("https://fleet.example/ringfence/").server
    assert server is not None
    assert (server.token, server.url) == ("rft_file", "https://fleet.example/ringfence")


def test_a_server_that_is_not_there_is_named(home: Path, monkeypatch: pytest.MonkeyPatch):
    """An unreachable server is reported with its address, and never with the token."""
    monkeypatch.setenv("RINGFENCE_TOKEN", "rft_secret")
    with kept_port() as port, pytest.raises(InfrastructureFault, match=f"127.0.0.1:{port}") as caught:
        open_client(f"http://127.0.0.1:{port}").get("status")
    assert "rft_secret" not in str(caught.value)
