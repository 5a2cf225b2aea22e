"""A verification says what is proved and what is claimed, and accepts nothing that its user did not ask for."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ringfence.errors import AuthenticationFailed, ConfigurationError, ExitCode, RecordError, RingfenceError
from ringfence.integrations.attestation.envelope import Signer, make_envelope
from ringfence.integrations.attestation.local_key import LocalSigner, openssh_key
from ringfence.integrations.attestation.statement import encode_statement, parse_statement
from ringfence.integrations.attestation.trusted_keys import KeyVerifier, read_trusted_keys
from ringfence.integrations.attestation.verification import (
    Report,
    Requirements,
    TreeChoice,
    verify_attestation,
)
from ringfence.journal.seal import keys_dir, signing_key

from .statements import NOW, sign, state

DAY = timedelta(days=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of two files."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    return root


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The public key of this state directory, as it lies there."""
    signing_key()
    file = tmp_path / "key.pub"
    file.write_bytes((keys_dir() / "journal-ed25519.pub").read_bytes())
    return file


def verify(data: bytes, *keys: Path, **options: Any) -> Report:
    """Verify an attestation with the keys of these files."""

    async def run() -> Report:
        verifiers = [KeyVerifier(read_trusted_keys(keys))] if keys else []
        return await verify_attestation(
            data, name="file", verifiers=verifiers, now=options.pop("now", NOW + DAY), **options
        )

    return anyio.run(run)


def allow(file: Path, *lines: str) -> Path:
    """Write a list of keys; `KEY` stands for the key of this state directory."""
    key = openssh_key(signing_key().public_hex)
    file.write_text("".join(line.replace("KEY", key) + "\n" for line in lines))
    return file


def test_a_good_attestation_is_verified(root: Path, key_file: Path) -> None:
    """Signature, seal and tree are proved; the check is the signer's claim."""
    found = verify(sign(state(root)), key_file, tree=TreeChoice(root))
    assert (found.verdict, found.exit_code, found.fault) == ("verified", ExitCode.OK, "")
    proved, claimed = "\n".join(found.proved), "\n".join(found.claimed)
    assert "the same key sealed a journal of run" in proved
    assert "holds exactly the files of the statement, 2 in all" in proved
    assert "the check 'make test' passed" in claimed
    assert "make test" not in proved
    assert any("honest is not proved" in line for line in found.uncovered)


def test_without_a_key_nobody_vouches(root: Path) -> None:
    """The file is undamaged, and that is all: anybody could have made it."""
    found = verify(sign(state(root)), tree=TreeChoice(root))
    assert (found.verdict, found.exit_code) == ("unknown_signer", ExitCode.UNVERIFIED)
    assert "by whomever" in found.proved[0]


def test_another_tree_is_named_by_its_first_path(root: Path, key_file: Path) -> None:
    """With control characters spelled out, also where no key is given."""
    data = sign(state(root))
    (root / "a\n\x1b[2J\u202e").touch()
    found = verify(data, key_file, tree=TreeChoice(root))
    assert (found.verdict, found.exit_code) == ("different", ExitCode.CHECK_RED)
    assert found.difference == r"a\n\x1b[2J\u202e"
    assert re.search(r"'a\\n\\x1b\[2J\\u202e' is not in the attested tree", found.fault)
    assert not any("holds exactly" in line for line in found.proved)
    assert verify(data, tree=TreeChoice(root)).verdict == "different"


@pytest.mark.parametrize(
    ("changes", "options", "code"),
    [
        pytest.param({"check": None}, {}, 9, id="no check"),
        pytest.param({"state": "unverified"}, {}, 3, id="a check of a run that is unverified"),
        pytest.param({"check": None, "state": "unverified"}, {}, 9, id="unverified"),
        pytest.param({"passed": False}, {}, 3, id="a red check of a run that succeeded"),
        pytest.param({"state": "check_red", "passed": False}, {}, 3, id="red"),
        pytest.param({"check": None, "state": "failed"}, {}, 3, id="failed"),
        pytest.param({"state": "odd"}, {}, 3, id="an unknown state"),
        pytest.param({"check": None, "state": "failed"}, {"any_state": True}, 0, id="any state"),
        pytest.param({}, {"check": "make test"}, 0, id="the demanded check"),
        pytest.param({}, {"check": "make tests"}, 3, id="another check"),
        pytest.param({"check": None}, {"check": "make test", "any_state": True}, 3, id="no demanded check"),
    ],
)
def test_a_run_must_have_passed_its_check(
    root: Path, key_file: Path, changes: dict[str, Any], options: dict[str, Any], code: int
) -> None:
    """Unless its state does not matter to the verifier."""
    good = msgspec.to_builtins(state(root).predicate)
    run = {**good["run"], "state": changes.get("state", "succeeded")}
    check = None if "check" in changes else {**good["check"], "passed": changes.get("passed", True)}
    data = sign(state(root, run=run, check=check))
    assert verify(data, key_file, requirements=Requirements(**options)).exit_code == code


def test_a_check_that_changed_files_passed_on_other_files(root: Path, key_file: Path) -> None:
    """A check runs the agent's code, which could change what was checked after it was."""
    good = msgspec.to_builtins(state(root).predicate)
    data = sign(state(root, check={**good["check"], "tree": {"gitTree": "1" * 40}}))
    found = verify(data, key_file, tree=TreeChoice(root))
    assert (found.verdict, found.exit_code) == ("unchecked", ExitCode.CHECK_RED)
    assert "no check passed on these files" in found.fault
    assert verify(data, key_file, requirements=Requirements(any_state=True)).exit_code == ExitCode.OK


def test_an_unknown_key_is_refused(root: Path, tmp_path: Path) -> None:
    """The one in the file never vouches for itself."""
    other = Ed25519PrivateKey.generate().public_key()
    pem = tmp_path / "other.pub"
    pem.write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(AuthenticationFailed, match=r"the key SHA256:\S+ is unknown"):
        verify(sign(state(root)), pem)


@pytest.mark.parametrize(
    ("line", "is_accepted"),
    [
        ("KEY a comment", True),
        ("me@example.com KEY", True),
        ('"me with spaces" namespaces="git,ringfence-*" KEY', True),
        ('me valid-after="20260101",valid-before="20261231Z" KEY', True),
        ('me valid-before="20260301120000Z" KEY', False),
        ('me valid-before="202603011159Z" KEY', False),
        ('me valid-after="20260301120001Z" KEY', False),
        ('me namespaces="git" KEY', False),
        ('me namespaces="!ringfence-attestation,*" KEY', False),
        ("me cert-authority KEY", False),
    ],
)
def test_a_list_of_keys_limits_them(root: Path, tmp_path: Path, line: str, is_accepted: bool) -> None:
    """In time and by purpose, as ssh-keygen does; the first time is the statement's, the second the present."""
    other = openssh_key("ab" * 32)
    file = allow(tmp_path / "allowed", "# comment", "", f"you {other}", line)
    if is_accepted:
        assert verify(sign(state(root)), file).verdict == "verified"
    else:
        with pytest.raises(AuthenticationFailed, match=r"\A[^\n]*\Z"):
            verify(sign(state(root)), file)


def test_an_expired_key_counts_where_an_anchor_proves_the_time(root: Path, tmp_path: Path) -> None:
    """The time in a statement is the signer's: whoever has an expired key could write any."""
    file = allow(tmp_path / "allowed", 'me valid-before="20260302Z" KEY')
    data = sign(state(root))
    with pytest.raises(AuthenticationFailed, match="expired at 2026-03-02"):
        verify(data, file, now=NOW + 30 * DAY)
    proved = NOW + timedelta(hours=1)
    assert verify(data, file, now=NOW + 30 * DAY, proved_at=proved).verdict == "verified"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "\0\n",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        "ssh-ed25519 AAAA\n",
        "ssh-rsa AAAA\n",
        'me valid-before="soon" KEY\n',
        'me valid-before="20261340" KEY\n',
        "me no-such-option KEY\n",
        "me valid-before=20261231 KEY\n",
        "one two three\n",
    ],
    ids=repr,
)
def test_a_file_without_usable_keys_is_an_error(tmp_path: Path, text: str) -> None:
    """One line that names the file; nobody is trusted by mistake."""
    file = allow(tmp_path / "keys", text)
    with pytest.raises(ConfigurationError, match=rf"\A[^\n]*{re.escape(str(file))}[^\n]*\Z"):
        read_trusted_keys([file])


def test_a_second_signature_by_an_unknown_key_does_not_hurt(root: Path, key_file: Path) -> None:
    """It is named among what is not covered; one that is wrong refuses the file."""

    class Other:
        async def sign(self, payload_type: str, payload: bytes) -> Any:
            from ringfence.integrations.attestation.envelope import make_signature, pae

            key = Ed25519PrivateKey.generate()
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
            message = pae(payload_type, payload)
            return make_signature(key.sign(message), public_key=public, signature_format="ed25519")

    signers: list[Signer] = [Other(), LocalSigner()]
    data = anyio.run(make_envelope, encode_statement(state(root)), signers)
    found = verify(data, key_file)
    assert found.verdict == "verified"
    assert any("is unknown" in line for line in found.uncovered)


def _replaced(root: Path, old: str, new: str) -> bytes:
    """An attestation whose signer changed a text in the statement before he signed it."""
    payload = encode_statement(state(root))
    assert old.encode() in payload
    return anyio.run(make_envelope, payload.replace(old.encode(), new.encode(), 1), [LocalSigner()])


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        pytest.param('"lines":10', '"lines":11', RecordError, id="another length of the journal"),
        pytest.param('"head":"ab', '"head":"ac', RecordError, id="another head"),
        pytest.param('"id":"2026', '"id":"2025', RecordError, id="another run"),
        pytest.param('"path":"a"', '"path":"A"', ConfigurationError, id="another file"),
        pytest.param(
            '"_type":"https://in-toto.io/Statement/v1"', '"_type":"x"', ConfigurationError, id="type"
        ),
        pytest.param("attestation:run:v1", "attestation:run:v2", ConfigurationError, id="predicate"),
        pytest.param('"omitted":[]', '"omitted":[],"more":1', ConfigurationError, id="unknown field"),
        pytest.param('"lines":10', '"lines":10,"lines":10', ConfigurationError, id="key twice"),
        pytest.param('"lines":10', '"lines":1e400', ConfigurationError, id="infinity"),
        pytest.param('"lines":10', '"lines":' + "9" * 5000, ConfigurationError, id="long number"),
        pytest.param('"version":"0.2.0"', '"version":"\\ud800"', ConfigurationError, id="surrogate"),
        pytest.param(
            '"omitted":[]', '"omitted":[' + '"",' * 1000 + '""]', ConfigurationError, id="long list"
        ),
        pytest.param(
            '"issuedAt":"2026-03-01T12:00:00Z"',
            '"issuedAt":"0001-01-01T00:00:00+14:00"',
            ConfigurationError,
            id="offset",
        ),
        pytest.param(
            '"version":"0.2.0"', '"version":"' + "x" * 70_000 + '"', ConfigurationError, id="long text"
        ),
        pytest.param('"uncovered":[]', '"uncovered":["../x"]', ConfigurationError, id="path"),
        pytest.param('"omitted":[]', '"omitted":' + "[" * 5000 + "]" * 5000, ConfigurationError, id="nested"),
        pytest.param('"omitted":[]}}', '"omitted":[]}}x', ConfigurationError, id="trailing"),
    ],
)
def test_a_statement_that_cannot_be_is_refused(
    root: Path, key_file: Path, old: str, new: str, kind: type[RingfenceError]
) -> None:
    """Also one that a trusted key has signed."""
    with pytest.raises(kind, match=r"\A[^\n]*'file'[^\n]*\Z"):
        verify(_replaced(root, old, new), key_file, tree=TreeChoice(root))


def test_a_wrong_git_tree_is_refused(root: Path, key_file: Path) -> None:
    """Whoever looks at git's id alone must be able to rely on it."""
    tree = state(root).subject[0].digest.git_tree or ""
    with pytest.raises(RecordError, match="its git tree is not that of its files"):
        verify(_replaced(root, tree, "0" * 40), key_file, tree=TreeChoice(root))


def test_a_statement_is_parsed_as_it_was_signed(root: Path) -> None:
    """Spaces and order of a statement by another writer do not matter."""
    payload = msgspec.json.format(encode_statement(state(root)), indent=2)
    assert parse_statement(payload, name="x") == state(root)


def test_what_the_signer_writes_is_no_command_for_a_terminal(root: Path, key_file: Path) -> None:
    """Reports keep the signer's texts apart from their own words."""
    found = verify(sign(state(root, omitted=["\x1b[2J\nPROVED\n  all is well"])), key_file)
    assert not any("PROVED" in line for line in found.proved)
