"""Classification of captured error messages of engines."""

import pytest

from ringfence.sandbox.docker.failure import classify, explain, plain

CAPTURED = {
    # Docker 20.10.24, with the address before what the system says
    "unix:///var/run/docker.sock: Permission denied": "socket-permission",
    "unix:///run/podman/podman.sock: Permission denied": "podman-socket-permission",
    "unix:///nope.sock: No such file or directory": "not-running",
    "tcp://127.0.0.1:1: Connection refused": "not-running",
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)": "tls",
    "no such image: debian:12: No such image: debian:12": "no-image",
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    'exec: "python3": executable file not found in $PATH: unknown': "no-interpreter",
    "Minimum memory limit allowed is 6MB": "memory-too-small",
    "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available": "processors",
    "Requested CPUs are not available - requested 7, available: 0-1": "processors",
    "Unknown runtime specified kata": "no-runtime",
    'invalid mount config for type "bind": bind source path does not exist: /nowhere': "source-gone",
    # Podman 4.3.1
    "preparing container fd4c for attach: runc: runc create failed: unable to start container process: error during "
    "container init: error setting rlimits for ready process: error setting rlimit type 6: operation not permitted: "
    "OCI permission denied": "rlimit",
    "localhost/nix:1: image not known": "no-image",
    "network nosuchnet not found": "no-network",
    "statfs /nowhere: no such file or directory": "source-gone",
    # OpenSSH 9.2
    "ssh: connect to host localhost port 1: Connection refused": "ssh",
    "me@far: Permission denied (publickey).": "ssh",
    "Host key verification failed.": "ssh",
    "write /var/lib/docker/tmp/x: no space left on device": "disk-full",
}


@pytest.mark.parametrize(
    ("said", "name"), CAPTURED.items(), ids=[f"{n}-{i}" for i, n in enumerate(CAPTURED.values())]
)
def test_cause(said: str, name: str) -> None:
    """Each captured message is classified with the right cause."""
    cause = classify(said)
    assert cause is not None
    assert cause.name == name


def test_advice_follows() -> None:
    """The error quotes the engine first and then gives the advice."""
    text = explain("no such image: x")
    assert text.startswith("no such image: x; build it with `ringfence image build`")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[SSL: UNKNOWN_CA] unknown ca (_ssl.c:1006)", "unknown ca"),
        ("no such image: debian:12: No such image: debian:12", "no such image"),
        ("no such image: a: No such image: b", "no such image: a: No such image: b"),
        ("failed to find image a/b:1: a/b:1: No such image", "No such image"),  # Podman 4.3.1
    ],
)
def test_quote_omits_what_the_error_names(said: str, told: str) -> None:
    """The quote of the engine leaves out addresses and names that the error already contains."""
    assert plain(said) == told


def test_unknown_message_is_quoted() -> None:
    """A message of unknown cause is quoted as it is, in one line."""
    assert explain("some\n thing") == "some thing"


def test_a_repeated_request_is_left_out() -> None:
    """A request that an engine repeats in its message (Podman does with a filter) is left out of the quote."""
    text = explain("open {" + "setrlimit " * 500 + "}: file name too long")
    assert text == "open {...}: file name too long"


def test_quote_is_bounded() -> None:
    """The quote of a long message is shortened."""
    assert len(explain("x" * 1_000_000)) < 1000
