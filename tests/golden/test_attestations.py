"""Runs of version 0.1 can be attested as far as their records go."""

import json
from pathlib import Path

import pytest

from .conftest import Unpack


@pytest.mark.parametrize("case", ["run-api", "run-docker", "imported", "journals"])
def test_a_sealed_run_is_attested_or_refused_in_one_line(
    relocated: Unpack, case: str, tmp_path: Path
) -> None:
    """What the record does not hold is left out, and the statement says so."""
    state = relocated(case)
    for run in sorted(path.name for path in state.state.glob("runs/*")):
        last = (state.state / "runs" / run / "journal.jsonl").read_text().splitlines()[-1]
        is_whole = '"event":"journal.sealed"' in last and (state.state / "runs" / run / "work.patch").exists()
        file = tmp_path / f"{run}.json"
        done = state.run("runs attest", run, "-o", str(file), code=0 if is_whole else 1)
        assert file.exists() == is_whole
        if is_whole:
            key = state.state / "keys" / "journal-ed25519.pub"
            done = state.run("attest verify", str(file), "--key", str(key), "--any-state", "--json")
            assert json.loads(done.stdout)["statement"]["predicate"]["omitted"]
        else:
            assert done.stderr.count("\n") == 1
