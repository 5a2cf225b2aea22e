"""The anchors of an envelope, and the file beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integrations.attestation.test_git_anchor import git
from tests.integrations.attestation.time_stamp_authority import Authority, Server, serving

from ringfence.errors import ConfigurationError, InfrastructureFault, RecordError, UsageError
from ringfence.integrations.attestation.anchors import (
    Anchors,
    add_anchors,
    anchors_file,
    read_anchors,
    verify_anchors,
    write_anchors,
)
from ringfence.integrations.attestation.git_anchor import AnchorMissing
from ringfence.integrations.attestation.timestamp import TimestampRefused

ENVELOPE, JOURNAL = b'{"payload":"e30="}\n', "b" * 64


@pytest.fixture
def remote(tmp_path: Path) -> str:
    """A value of `--anchor`, for an empty repository."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    return f"git:{tmp_path / 'remote.git'}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A time-stamp server."""
    pytest.importorskip("rfc3161_client", reason="the extra `attest` is not installed")
    with serving(Server(Authority(tmp_path / "tsa"))) as served:
        yield served


async def anchored(*names: str, certificates: Path | None = None) -> Anchors:
    """The anchors of the envelope."""
    return await add_anchors(names, ENVELOPE, journal=JOURNAL, certificates=certificates)


async def test_both(tmp_path: Path, remote: str, server: Server):
    """Anchors are kept in a file beside the envelope, and verified by what the verifier names."""
    root = server.authority.root
    file = anchors_file(tmp_path / "attestation.json")
    write_anchors(file, await anchored(remote, f"tsa:{server.url}", certificates=root))
    kept = read_anchors(file, ENVELOPE)
    found = await verify_anchors(ENVELOPE, journal=JOURNAL, remotes=[remote], certificates=root, kept=kept)
    in_git, stamped = found
    assert "offline" in in_git.text
    assert in_git.proved_at is None
    assert stamped.proved_at is not None


async def test_nothing_in_the_file_is_trusted(tmp_path: Path, remote: str, server: Server):
    """Without a remote or a certificate of the verifier's own, nothing is verified, and nobody is asked."""
    kept = await anchored(remote, f"tsa:{server.url}", certificates=server.authority.root)
    assert await verify_anchors(ENVELOPE, journal=JOURNAL, kept=kept) == []
    other = Authority(tmp_path / "other")
    with pytest.raises(TimestampRefused):
        await verify_anchors(ENVELOPE, journal=JOURNAL, certificates=other.root, kept=kept)


async def test_absent(tmp_path: Path, remote: str, server: Server):
    """An anchor that the verifier asks for has to be there."""
    await anchored(remote)
    with pytest.raises(AnchorMissing):
        await verify_anchors(b"another", journal=JOURNAL, remotes=[remote])
    with pytest.raises(AnchorMissing, match="another journal"):
        await verify_anchors(ENVELOPE, journal="c" * 64, remotes=[remote])
    with pytest.raises(AnchorMissing, match="no time-stamp"):
        await verify_anchors(ENVELOPE, journal=JOURNAL, certificates=server.authority.root)


async def test_added(remote: str):
    """An envelope may have several anchors, up to 16."""
    kept = await add_anchors([remote] * 2, ENVELOPE, journal=JOURNAL, certificates=None)
    assert len(kept.anchors) == 2
    with pytest.raises(UsageError, match="16"):
        await add_anchors([remote] * 17, ENVELOPE, journal=JOURNAL, certificates=None)


async def test_nothing_is_anchored_by_half(tmp_path: Path, remote: str):
    """All names are read before the first is used."""
    for names in ((remote, "tsa:ftp://x"), (remote, "x"), (remote, "tsa:https://example.com")):
        with pytest.raises(UsageError):
            await anchored(*names)
    assert git(tmp_path / "remote.git", "for-each-ref") == ""


@pytest.mark.parametrize("name", ["", "x", "svn:x", "tsa:", "git:", "rfc3161:https://example.com"])
async def test_name_that_is_none(name: str):
    """Values of another form are refused."""
    with pytest.raises(UsageError):
        await anchored(name)


def test_file_of_another_envelope(tmp_path: Path):
    """A file of anchors names its envelope, and is refused for another."""
    file = tmp_path / "x.anchors"
    assert read_anchors(file, ENVELOPE) is None
    write_anchors(file, Anchors(envelope=f"sha256:{'a' * 64}", anchors=[]))
    with pytest.raises(RecordError, match="another envelope"):
        read_anchors(file, ENVELOPE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":2,"envelope":"x","anchors":[]}',
        b'{"version":1,"envelope":"x","anchors":[],"more":1}',
        b'{"version":1,"envelope":"x","anchors":[{"type":"rfc3161","server":"x","response":"!"}]}',
        b'{"version":1,"envelope":"x","anchors":[%s]}'
        % b",".join([b'{"type":"git","remote":"x","ref":"x","commit":"x"}'] * 17),
        b" " * 10_000_000,
    ],
)
def test_noise(tmp_path: Path, data: bytes):
    """What is no file of anchors is refused by name."""
    file = tmp_path / "x.anchors"
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"x\.anchors"):
        read_anchors(file, ENVELOPE)


def test_directory_that_cannot_be_written(tmp_path: Path):
    """A file that cannot be written is named."""
    with pytest.raises(InfrastructureFault, match="absent"):
        write_anchors(tmp_path / "absent" / "x", Anchors(envelope="x", anchors=[]))
