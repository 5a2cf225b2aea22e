"""Writing a converted herdctl fleet as ringfence.yaml: the same fleet, and no secret in the file."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fleet.herdctl.conftest import Fleets
from tests.fleet.herdctl.keys import AGENT

from ringfence.config.yaml import read_document
from ringfence.errors import ConfigurationError
from ringfence.fleet.config.difference import explicit_values
from ringfence.fleet.config.loader import load_fleet
from ringfence.fleet.herdctl.importer import convert
from ringfence.fleet.herdctl.writer import render_files

VARIABLES = {"TOKEN": "t", "GH": "g", "S": "s"}


def _written(file: Path, output: Path) -> dict[Path, str]:
    texts = render_files(convert(read_document(file), environ=VARIABLES), output)
    for target, text in texts.items():
        target.write_text(text)
    return texts


def _rows(file: Path) -> dict[str, Any]:
    return {
        row.key: row.value
        for row in explicit_values(load_fleet(file, environ=VARIABLES))
        if row.key != "fleet.name"
    }


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(AGENT), max_size=10), st.lists(st.sampled_from(AGENT), max_size=4))
def test_the_file_says_the_same_as_the_fleet(own: list[Any], defaults: list[Any]):
    """For any keys of a herdctl fleet, the written file defines the same fleet."""
    agent: dict[str, Any] = {"name": "a"}
    fleet: dict[str, Any] = {"agents": [{"path": "sub/a.yaml"}], "defaults": {}}
    for key in own:
        key.put(agent)
    for key in defaults:
        key.put(fleet["defaults"])
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "sub").mkdir()
        (directory / "sub" / "a.yaml").write_text(json.dumps(agent))
        file = directory / "herdctl.yaml"
        file.write_text(json.dumps(fleet))
        try:
            before = _rows(file)
        except ConfigurationError:
            return
        _written(file, directory / "ringfence.yaml")
        assert _rows(directory / "ringfence.yaml") == before


def test_fleets_below_are_files_of_their_own(fleets: Fleets):
    """Each nested fleet becomes a file of its own, included under its name; paths stay valid from any directory."""
    file = fleets(
        "fleets: [{path: low}]\nagents: [{path: a.yaml}]\n",
        a="name: a\nplugins: [./p]\n",
        low__herdctl="fleet: {name: low}\nfleets: [{path: deep, name: deep}]\nagents: [{path: b.yaml}]\n",
        low__b="name: b\nworking_directory: ../w\n",
        low__deep__herdctl="agents: [{path: ../b.yaml}]\n",
    )
    elsewhere = file.parent.parent / "elsewhere"
    elsewhere.mkdir()
    texts = _written(file, elsewhere / "crew.yaml")
    assert [target.name for target in texts] == ["crew.yaml", "crew.low.yaml", "crew.low.deep.yaml"]
    assert _rows(elsewhere / "crew.yaml") == _rows(file)


def test_what_does_not_come_over_stands_at_the_top(fleets: Fleets):
    """A comment at the top names each key that was not converted, with its place; no key can end the comment."""
    file = fleets(
        "web: {enabled: true}\n'a\\nb': 1\n\"x\\ny: 1\": 2\nagents: [{path: a.yaml}]\n", a="name: a\n"
    )
    (text,) = _written(file, file.with_name("ringfence.yaml")).values()
    head, _, body = text.partition("\n\n")
    assert all(line.startswith("#") for line in head.splitlines())
    assert "#   web (herdctl.yaml:1): left out:" in head
    assert load_fleet(file.with_name("ringfence.yaml"), environ={}).agents
    assert body.startswith("agents:")


def test_no_secret_is_written(fleets: Fleets):
    """Values of variables are never written, and tokens in herdctl's files are left out."""
    token = "ghp_" + "a1B2c3D4e5" * 4
    file = fleets(
        f"defaults: {{docker: {{env: {{GITHUB_TOKEN: {token}}}}}}}\nagents: [{{path: a.yaml}}]\n",
        a="name: a\ndefault_prompt: ${TOKEN}\nhooks: {on_error: [{type: webhook, url: 'https://x/${TOKEN}'}]}\n"
        f"mcp_servers: {{x: {{url: https://x, headers: {{Authorization: Bearer {token}}}}}}}\n",
    )
    conversion = convert(read_document(file), environ={"TOKEN": "very-secret"})
    (text,) = render_files(conversion, file.with_name("ringfence.yaml")).values()
    assert token not in text
    assert "very-secret" not in text
    assert "url: https://x/${secret:TOKEN}" in text


def test_strange_texts_stay_what_they_are(fleets: Fleets):
    """Texts that have a meaning in YAML or in ringfence.yaml are written so that they stay the same."""
    prompt = (
        "yes: no\n# not a comment\n- 'a' \"b\" {{ payload.x }} $$ ${NO ${secret:X} \u202e \u2028 \x7f 1e3"
    )
    file = fleets("agents: [{path: a.yaml}]\n", a=json.dumps({"name": "a", "default_prompt": prompt}))
    _written(file, file.with_name("ringfence.yaml"))
    found = load_fleet(file.with_name("ringfence.yaml"), environ=os.environ).agents["a"].settings.prompt
    assert found == prompt
