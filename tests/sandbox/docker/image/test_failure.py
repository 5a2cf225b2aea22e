"""Causes of failed builds, classified by texts that programs really wrote."""

import pytest

from ringfence.sandbox.docker.image.failure import CAUSES, ImageBuildFailed, classify

SAID = [
    # apt 3.0.3
    ("no-network", "E: Failed to fetch http://a.example/InRelease  Temporary failure resolving 'a.example'"),
    (
        "no-network",
        "E: Failed to fetch http://a.example/InRelease  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect",
    ),
    ("no-network", "E: Failed to fetch http://a.example/InRelease  Could not resolve 'a.example'"),
    ("no-package", "E: Unable to locate package nosuchpkg"),
    ("no-package", "E: The repository 'file:/nowhere/debian trixie Release' does not have a Release file."),
    ("disk-full", "E: You don't have enough free space in /var/cache/apt/archives/."),
    (
        "untrusted",
        "Err:1 http://a.example trixie\n  The signatures couldn't be verified because no keyring is",
    ),
    # dpkg 1.22.21, dd
    (
        "disk-full",
        "cannot copy extracted data for './x' to '/x.dpkg-new': failed to write (No space left on device)",
    ),
    # pip 25.1
    ("no-network", "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution"),
    ("no-package", "ERROR: No matching distribution found for six==99.0"),
    ("damaged", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."),
    (
        "certificate",
        "SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed",
    ),
    # npm 9.2.0
    ("certificate", "npm ERR! code SELF_SIGNED_CERT_IN_CHAIN"),
    ("no-network", "npm ERR! code EAI_AGAIN"),
    ("disk-full", "npm ERR! code ENOSPC"),
    ("damaged", "npm ERR! code EINTEGRITY"),
    ("no-package", "npm ERR! code ETARGET"),
    # Docker 20.10.24, Podman 4.3.1
    (
        "no-registry",
        'Get "https://registry.example/v2/": dial tcp: lookup registry.example on 10.0.0.1:53: no such host',
    ),
    (
        "no-registry",
        "Error: initializing source docker://debian:trixie-slim: pinging container registry registry.example",
    ),
    (
        "disk-full",
        "Error processing tar file(exit status 1): write /usr/bin/x: no space left on device",
    ),
    # mmdebstrap 1.3.5
    ("no-privileges", "W: /etc/subuid is empty\nE: failed to parse /etc/subuid and /etc/subgid"),
]


@pytest.mark.parametrize(("name", "said"), SAID, ids=lambda value: value[:30])
def test_the_cause_is_known(name, said):
    """Each captured or documented text is classified with its cause."""
    cause = classify(said)
    assert cause is not None
    assert cause.name == name


def test_every_cause_has_a_text():
    """Each row of the table has a captured or documented text."""
    assert {name for name, _ in SAID} == {cause.name for cause in CAUSES}


def test_the_decisive_line_is_quoted():
    """The error quotes the line that names the cause, and gives the advice."""
    detail = "Get:1 things\nE: Unable to locate package nosuchpkg\nRemoving intermediate container"
    error = ImageBuildFailed("base", 'RUN ["x"]', "returned a non-zero code: 100", detail=detail)
    assert "Unable to locate package nosuchpkg" in str(error)
    assert "--mirror" in str(error)


def test_unknown_failure_is_quoted():
    """For an unknown cause the last line is quoted, without advice."""
    assert str(ImageBuildFailed("base", "make", "exit code 2", detail="a\nb\n")) == (
        "image 'base' could not be built: 'make': exit code 2: b"
    )


def test_the_step_stands_in_the_error_once() -> None:
    """The error names the failed instruction once, although the engine repeats it."""
    step = "RUN make all"
    said = "The command '/bin/sh -c make all' returned a non-zero code: 2"
    error = ImageBuildFailed("base", step, said, detail=f"fetched\nStep 4/9 : {step}\n")
    assert str(error) == "image 'base' could not be built: 'RUN make all': exit code 2: fetched"
