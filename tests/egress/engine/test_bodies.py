"""Bodies of requests: only what is known passes, built anew."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.engine.messages import exec_body, logged_command, start_body
from ringfence.egress.engine.routes import Rejected

CLIENTS = {
    "docker 28": {
        "User": "",
        "Privileged": False,
        "Tty": False,
        "AttachStdin": False,
        "AttachStderr": True,
        "AttachStdout": True,
        "DetachKeys": "",
        "Env": None,
        "WorkingDir": "",
        "Cmd": ["true"],
    },
    "docker-py": {
        "Container": "web",
        "User": "",
        "Privileged": False,
        "Tty": False,
        "AttachStdin": False,
        "AttachStdout": True,
        "AttachStderr": True,
        "Cmd": ["true"],
        "Env": None,
    },
}
BAD = {
    "privileged": b'{"Cmd": ["x"], "Privileged": true}',
    "privileged in small letters": b'{"Cmd": ["x"], "privileged": true}',
    "privileged in odd letters": b'{"Cmd": ["x"], "PRIVILEGED": true}',
    "privileged by folding": '{"Cmd": ["x"], "Privileged\u017f": true}'.encode(),
    "privileged twice": b'{"Cmd": ["x"], "Privileged": false, "privileged": true}',
    "privileged as a number": b'{"Cmd": ["x"], "Privileged": 1}',
    "another user": b'{"Cmd": ["x"], "User": "0"}',
    "unknown": b'{"Cmd": ["x"], "HostConfig": {}}',
    "no command": b"{}",
    "command as text": b'{"Cmd": "x"}',
    "command of numbers": b'{"Cmd": [1]}',
    "no object": b'["Cmd"]',
    "no JSON": b"Cmd",
    "empty": b"",
    "two values": b'{"Cmd": ["x"]} {"Privileged": true}',
    "very deep": b'{"Cmd":' + b"[" * 5000,
    "not UTF-8": b'{"Cmd": ["\xff"]}',
    "half a surrogate pair": b'{"Cmd": ["\\ud800"]}',
}


@pytest.mark.parametrize("name", CLIENTS)
def test_real_clients(name: str) -> None:
    """What real clients send is passed on without what is not needed."""
    built = json.loads(exec_body(json.dumps(CLIENTS[name]).encode(), may_choose_user=False))
    assert built["Cmd"] == ["true"]
    assert not {"Privileged", "Container"} & set(built)


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    """Privileges in any spelling, other users and what is not known are refused."""
    with pytest.raises(Rejected):
        exec_body(BAD[name], may_choose_user=False)


def test_user_when_granted() -> None:
    """Another user passes where that was granted; privileges never do."""
    assert json.loads(exec_body(BAD["another user"], may_choose_user=True))["User"] == "0"
    with pytest.raises(Rejected):
        exec_body(BAD["privileged"], may_choose_user=True)


def test_start() -> None:
    """Starting a command says whether it is held."""
    assert start_body(b'{"Detach": true, "Tty": false}') == (b'{"Detach": true, "Tty": false}', True)
    assert start_body(b"") == (b"{}", False)
    with pytest.raises(Rejected):
        start_body(b'{"Detach": true, "Cmd": ["x"]}')


@given(body=st.binary(max_size=60))
def test_any_bytes(body: bytes) -> None:
    """Any bytes are a body that is known, or are refused."""
    try:
        built = json.loads(exec_body(body, may_choose_user=False))
    except Rejected:
        return
    assert built["Cmd"]


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        (["id", "-u"], ["id", "-u"]),
        (["a" * 9000, "b"], ["a" * 8192 + "...", "..."]),
        (["a"] * 5000, ["a"] * 4096 + ["..."]),
    ],
    ids=["short", "long word", "many words"],
)
def test_what_is_recorded_of_a_command(command: list[str], recorded: list[str]) -> None:
    """All of one that a person would write, and a bounded part of any."""
    body = exec_body(json.dumps({"Cmd": command, "User": "root"}).encode(), may_choose_user=True)
    assert logged_command(body) == (recorded, "root")
