import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import ConfigurationError, UsageError
from ringfence.model.prices import Price
from ringfence.model.registry import check_name, known_model, needs_credential


async def test_a_script_brings_its_name_and_its_price(tmp_path: Path):
    """`scripted:FILE` needs no credential; where the script gives no price, none is made up."""
    script = tmp_path / "script.yaml"
    script.write_text("turns:\n  - text: hello\nprice: {input: 1, output: 2}\n")
    assert await known_model(f"scripted:{script}") == ("scripted", {"scripted": Price(input=1, output=2)})
    script.write_text("turns:\n  - text: hello\n")
    assert await known_model(f"scripted:{script}") == ("scripted", {})
    assert await known_model("claude-opus-5-5") == ("claude-opus-5-5", {})
    assert [needs_credential(name) for name in ("claude-opus-5-5", "scripted:x")] == [True, False]


async def test_a_script_that_is_not_there_is_a_clear_error(tmp_path: Path):
    """It names the file."""
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: cannot read the script: No such file"):
        await known_model(f"scripted:{tmp_path / 'absent.yaml'}")


@pytest.mark.parametrize("name", ["", "scripted:"])
def test_a_name_that_is_none_is_refused(name: str):
    """It says what a name looks like."""
    with pytest.raises(UsageError, match="scripted:FILE"):
        check_name(name)


def test_importing_the_room_imports_nothing_heavy():
    """`ringfence --help` does not pay for pydantic or the server."""
    heavy = "anthropic", "pydantic", "starlette", "uvicorn", "httpx2", "anyio"
    code = f"import sys, ringfence.model; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
