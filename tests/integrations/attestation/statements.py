"""Statements about directories, for tests: what a run would state whose result is that directory."""

import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec

from ringfence.integrations.attestation.envelope import make_envelope
from ringfence.integrations.attestation.local_key import LocalSigner
from ringfence.integrations.attestation.manifest import FileEntry, digest_files, encode_path, git_tree_id
from ringfence.integrations.attestation.statement import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Statement,
    encode_statement,
    parse_statement,
)
from ringfence.journal.seal import seal_message, signing_key
from ringfence.sandbox.workspace.snapshot.objects import blob_id, git_mode

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = "2026-03-01T11-00-00-0123abcd"


def list_files(root: Path) -> tuple[tuple[FileEntry, ...], str]:
    """The manifest of a directory without `.git`, read in the plainest way, and git's id of its tree."""
    entries, blobs = [], {}
    for path in root.rglob("*"):
        if ".git" not in path.parts and (path.is_symlink() or path.is_file()):
            status = path.lstat()
            data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            mode, inner = git_mode(status.st_mode), os.fsencode(path.relative_to(root))
            text: Any = f"{mode:o}"
            entries.append(FileEntry(encode_path(inner), text, len(data), sha256(data).hexdigest()))
            blobs[inner] = (mode, blob_id(data).hex())
    return tuple(sorted(entries, key=lambda each: each.raw_path)), git_tree_id(blobs)


def state(root: Path, **changes: Any) -> Statement:
    """The statement of a run whose result is a directory; `changes` replace fields of the predicate."""
    files, tree = list_files(root)
    return state_files(files, tree, **changes)


def state_files(files: tuple[FileEntry, ...], tree: str, **changes: Any) -> Statement:
    """The statement of a run whose result is these files."""
    key, head = signing_key(), "ab" * 32
    message = seal_message(RUN, seq=9, time="2026-03-01T11:30:00.000000Z", head=head)
    predicate = {
        "issuedAt": NOW,
        "version": "0.2.0",
        "run": {
            "id": RUN,
            "state": "succeeded",
            "exitCode": 0,
            "turns": 1,
            "toolCalls": 2,
            "startedAt": NOW,
            "endedAt": NOW,
        },
        "source": {"repository": None, "commit": None, "tree": {"gitTree": "0" * 40}},
        "changes": {"files": 1, "insertions": 2, "deletions": 3},
        "manifest": {"files": msgspec.to_builtins(files), "uncovered": []},
        "check": {
            "command": "make test",
            "passed": True,
            "exitCode": 0,
            "endedBy": "exit",
            "runner": None,
            "tests": {},
            "canary": False,
            "caveats": [],
            "tree": {"gitTree": tree},
        },
        "command": None,
        "agent": {"runtime": "api", "toolset": "coder", "model": "m", "models": ["m"], "client": None},
        "prompt": {"sha256": "0" * 64},
        "sandboxes": [],
        "policy": {"configurationSha256": "0" * 64, "loosened": []},
        "journal": {
            "format": 1,
            "lines": 10,
            "head": head,
            "sealedAt": "2026-03-01T11:30:00.000000Z",
            "publicKey": key.public_hex,
            "signature": key.sign(message),
        },
        "omitted": [],
        **changes,
    }
    subjects = [
        {"name": "tree", "digest": {"gitTree": tree}},
        {"name": "tree.manifest", "digest": {"sha256": digest_files(files)}},
    ]
    document = {
        "_type": STATEMENT_TYPE,
        "predicateType": PREDICATE_TYPE,
        "subject": subjects,
        "predicate": predicate,
    }
    return parse_statement(msgspec.json.encode(document), name="test")


def sign(statement: Statement) -> bytes:
    """The attestation of a statement by the key of this state directory."""
    return anyio.run(make_envelope, encode_statement(statement), [LocalSigner()])
