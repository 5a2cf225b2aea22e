"""The signing key and the chain."""

import subprocess
import sys

import pytest

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError
from ringfence.journal import verify_run
from ringfence.journal.chain import known_heads, record_head
from ringfence.journal.seal import keys_dir, signing_key, trusted_keys

from .conftest import MakeRun

_ASK = "from ringfence.journal.seal import signing_key; print(signing_key().public_hex)"


@pytest.mark.slow
def test_many_at_once_make_one_key() -> None:
    """Processes that ask for the key at the same time all get the same one."""
    asked = [
        subprocess.Popen([sys.executable, "-c", _ASK], stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert {process.communicate()[0].strip() for process in asked} == {signing_key().public_hex}
    assert sorted(path.name for path in keys_dir().iterdir()) == ["journal-ed25519", "journal-ed25519.pub"]


def test_the_key_is_private() -> None:
    """The private key is 0600, its directory 0700."""
    signing_key()
    assert (keys_dir() / "journal-ed25519").stat().st_mode & 0o777 == 0o600
    assert keys_dir().stat().st_mode & 0o777 == 0o700


def test_a_key_that_others_can_read_is_refused() -> None:
    """A key with wide permissions may be known to others, so it signs nothing."""
    signing_key()
    (keys_dir() / "journal-ed25519").chmod(0o644)
    with pytest.raises(RecordError, match="others can read"):
        signing_key()


def test_a_damaged_key_is_named() -> None:
    """A damaged key file is an error with the next step, and is not replaced."""
    signing_key()
    (keys_dir() / "journal-ed25519").write_bytes(b"garbage")
    with pytest.raises(RecordError, match="is damaged; move it away"):
        signing_key()


def test_a_published_key_is_restored() -> None:
    """A public key that was lost is written again from the private one."""
    key = signing_key()
    (keys_dir() / "journal-ed25519.pub").unlink()
    assert signing_key().public_hex == key.public_hex
    assert trusted_keys() == {key.public_hex}


def test_heads_survive_a_torn_entry() -> None:
    """Half an entry, left by a crash, does not hide the entries after it."""
    record_head("a", seq=1, head="x")
    with (state_dir() / "heads").open("ab") as file:
        file.write(b'{"run_id":"a","seq":2,')
    record_head("a", seq=3, head="z")
    assert known_heads("a") == {1: "x", 3: "z"}


@pytest.mark.parametrize("garbage", [b"\xff\xfe\n", b"{}\n", b"\n", b"x" * 10_000 + b"\n"])
def test_garbage_in_the_index_vouches_for_nothing(garbage: bytes) -> None:
    """Lines of the index that do not parse are passed over."""
    record_head("a", seq=1, head="x")
    with (state_dir() / "heads").open("ab") as file:
        file.write(garbage)
    assert known_heads("a") == {1: "x"}


def test_a_forged_head_does_not_count(make_run: MakeRun) -> None:
    """An entry whose signature does not fit cannot make a good journal look bad."""
    directory = make_run()
    heads = state_dir() / "heads"
    heads.write_bytes(heads.read_bytes() + heads.read_bytes().replace(b'"seq":6', b'"seq":9'))
    assert verify_run(directory).ok
