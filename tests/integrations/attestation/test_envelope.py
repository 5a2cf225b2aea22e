"""The envelope of an attestation holds exactly what was signed, and no byte of it can change unnoticed."""

import base64
import json
from collections.abc import Callable

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.integrations.attestation.envelope import (
    MAX_ENVELOPE_BYTES,
    PAYLOAD_TYPE,
    Envelope,
    Signature,
    encode_envelope,
    fingerprint,
    make_envelope,
    make_signature,
    pae,
    parse_envelope,
)
from ringfence.integrations.attestation.local_key import LocalSigner, openssh_key
from ringfence.integrations.attestation.verification import check_signatures
from ringfence.journal.seal import signing_key

PAYLOAD = b'{"a":1}'


def sign(payload: bytes = PAYLOAD) -> bytes:
    """An envelope by the key of this state directory."""
    return anyio.run(make_envelope, payload, [LocalSigner()])


def accept(data: bytes) -> Envelope:
    """Parse an envelope and check its signatures."""
    envelope = parse_envelope(data, name="file")
    check_signatures(envelope, name="file")
    return envelope


def test_the_encoding_is_that_of_dsse() -> None:
    """The pre-authentication encoding is that of the example in DSSE's specification."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_other_readers_of_dsse_find_its_fields() -> None:
    """The envelope is JSON with the names of DSSE, and its payload is what was signed."""
    document = json.loads(sign())
    assert document["payloadType"] == PAYLOAD_TYPE
    assert base64.b64decode(document["payload"]) == PAYLOAD
    assert len(base64.b64decode(document["signatures"][0]["sig"])) == 64


def test_an_envelope_comes_back_as_it_was_made() -> None:
    """The parsed envelope holds the payload, and names the key as `ssh-keygen -l` does."""
    envelope = accept(sign())
    assert envelope.payload_bytes == PAYLOAD
    assert envelope.signatures[0].keyid == fingerprint(openssh_key(signing_key().public_hex))


def test_any_changed_byte_is_noticed() -> None:
    """Each byte of the file, replaced by any other, makes the file unusable."""
    data = sign()

    @settings(max_examples=examples(400))
    @given(st.integers(0, len(data) - 1), st.integers(1, 255))
    def changed(at: int, change: int) -> None:
        with pytest.raises(RingfenceError):
            accept(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])

    changed()
    for at in range(len(data)):
        with pytest.raises(RingfenceError):
            accept(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(RingfenceError):
            accept(data[:at] + data[at + 1 :])


def _with(**changes: object) -> bytes:
    document = json.loads(sign())
    return json.dumps(document | changes, separators=(",", ":")).encode() + b"\n"


def _with_signature(**changes: object) -> bytes:
    document = json.loads(sign())
    document["signatures"][0] |= changes
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: b"", id="empty"),
        pytest.param(lambda: b"\x00\xff", id="not text"),
        pytest.param(lambda: b"[" * 100_000, id="nested"),
        pytest.param(lambda: sign() + sign(), id="two"),
        pytest.param(lambda: sign().rstrip(), id="no newline"),
        pytest.param(lambda: json.dumps(json.loads(sign()), indent=1).encode(), id="printed anew"),
        pytest.param(
            lambda: sign().replace(b'{"payloadType"', b'{"payload":"","payloadType"'), id="key twice"
        ),
        pytest.param(lambda: _with(payloadType="text/plain"), id="another type"),
        pytest.param(lambda: _with(signatures=[]), id="unsigned"),
        pytest.param(
            lambda: _with(signatures=json.loads(sign())["signatures"] * 2), id="key twice in signatures"
        ),
        pytest.param(lambda: _with(more=1), id="unknown field"),
        pytest.param(lambda: _with_signature(more=1), id="unknown field of a signature"),
        pytest.param(lambda: _with_signature(format="none"), id="unknown format"),
        pytest.param(lambda: _with_signature(keyid="SHA256:" + "A" * 43), id="another keyid"),
        pytest.param(lambda: _with_signature(sig="A" * 200_000), id="long signature"),
        pytest.param(lambda: b" " * (MAX_ENVELOPE_BYTES + 1), id="too large"),
    ],
)
def test_a_file_of_another_form_is_refused(make: Callable[[], bytes]) -> None:
    """Only the form in which envelopes are written is read; the error is one line and names the file."""
    with pytest.raises(ConfigurationError, match=r"\A'file'[^\n]*\Z"):
        parse_envelope(make(), name="file")


def test_a_signature_of_another_payload_is_refused() -> None:
    """A signature cannot be moved from one payload to another."""
    first, second = accept(sign()), accept(sign(b"{}"))
    mixed = Envelope(first.payload_type, first.payload, second.signatures)
    with pytest.raises(RingfenceError, match="was changed after it was signed"):
        accept(encode_envelope(mixed))


def test_a_seal_of_a_journal_is_no_attestation() -> None:
    """What the key signs for a journal is never valid for an attestation."""
    key = signing_key()
    seal = bytes.fromhex(key.sign(b"ringfence journal seal v1\nrun\n1\ntime\nhead\n"))
    signature: Signature = make_signature(
        seal, public_key=openssh_key(key.public_hex), signature_format="ed25519"
    )
    text = base64.b64encode(b"ringfence journal seal v1\nrun\n1\ntime\nhead\n").decode()
    with pytest.raises(RingfenceError, match="was changed after it was signed"):
        accept(encode_envelope(Envelope(PAYLOAD_TYPE, text, (signature,))))
