"""Importing whole herdctl fleets: layers, names, nested fleets, and errors in files."""

import os
from pathlib import Path

import pytest
from tests.fleet.herdctl.conftest import Fleets, Read

from ringfence.errors import ConfigurationError
from ringfence.fleet.config.loader import load_fleet

ONE = "agents: [{path: a.yaml}]\n"


def test_one_small_key_turns_nothing_else_off(read: Read):
    """An agent that sets one key of `docker` keeps all other values of its fleet."""
    fleet = read(
        "defaults: {docker: {enabled: true, image: 'x:1', memory: 4g, workspace_mode: ro}}\n" + ONE,
        a="name: a\ndocker: {pids_limit: 50}\n",
    )
    sandbox = fleet.agents["a"].settings.sandbox
    assert (sandbox.backend, sandbox.image, sandbox.memory) == ("docker", "x:1", 4 * 1024**3)
    assert (sandbox.mode, sandbox.pids) == ("read_only", 50)


def test_overrides_are_the_strongest(read: Read):
    """The fleet's overrides take precedence over the agent's own file, and that over the defaults."""
    fleet = read(
        "defaults: {model: m1, max_turns: 1}\nagents: [{path: a.yaml, overrides: {model: m3}}]\n",
        a="name: a\nmodel: m2\nmax_turns: 2\n",
    )
    agent = fleet.agents["a"]
    assert (agent.settings.run.model, agent.settings.limits.turns) == ("m3", 2)
    assert str(agent.origin("run.model")).endswith("herdctl.yaml:2:44")
    assert str(agent.origin("limits.turns")).endswith("a.yaml:3:12")


def test_fleets_below_have_qualified_names_and_pass_on_defaults(read: Read):
    """Agents of nested fleets have qualified names; a fleet that two others include appears twice, and is no cycle."""
    fleet = read(
        "defaults: {max_turns: 3}\nfleets: [{path: left}, {path: right, name: R}]\n",
        left__herdctl="fleet: {name: Left}\nfleets: [{path: ../shared}]\n",
        right__herdctl="fleets: [{path: ../shared}]\n",
        shared__herdctl="fleet: {name: shared}\ndefaults: {model: m}\nagents: [{path: ../a.yaml}]\n",
        a="name: a\n",
    )
    assert list(fleet.agents) == ["left.shared.a", "r.shared.a"]
    agent = fleet.agents["r.shared.a"].settings
    assert (agent.limits.turns, agent.run.model) == (3, "m")


def test_overrides_of_a_fleet_below_are_laid_upon_its_file(read: Read):
    """A parent can override the defaults of a nested fleet."""
    fleet = read(
        "fleets: [{path: low, overrides: {defaults: {max_turns: 9}}}]\n",
        low__herdctl="fleet: {name: low}\ndefaults: {max_turns: 2}\nagents: [{path: a.yaml}]\n",
        low__a="name: a\n",
    )
    assert fleet.agents["low.a"].settings.limits.turns == 9


def test_paths_are_relative_to_the_file_that_says_them(read: Read, tmp_path: Path):
    """An agent works in the directory of its file, unless that file or the fleet's defaults name another."""
    fleet = read(
        "agents: [{path: sub/a.yaml}, {path: sub/b.yaml}]\n",
        sub__a="name: a\n",
        sub__b="name: b\nworking_directory: {root: ../w}\n",
    )
    assert fleet.agents["a"].settings.workspace == tmp_path / "herd" / "sub"
    assert fleet.agents["b"].settings.workspace == tmp_path / "herd" / "w"
    defaults = read("defaults: {working_directory: w}\nagents: [{path: sub/a.yaml}]\n", sub__a="name: a\n")
    assert defaults.agents["a"].settings.workspace == tmp_path / "herd" / "w"


def test_variables_are_put_in_before_anything_is_checked(read: Read):
    """Ports, numbers and mounts may come from variables; any other dollar sign stays as it is."""
    fleet = read(
        ONE,
        a="name: a\nmax_turns: ${TURNS}\ndocker: {volumes: ['${D:-/x}:/data:ro']}\n"
        "default_prompt: pay $5, $$ or ${X!}\n",
        environ={"TURNS": "4"},
    )
    agent = fleet.agents["a"].settings
    assert (agent.limits.turns, agent.sandbox.mounts[0].source) == (4, Path("/x"))
    assert agent.prompt == "pay $5, $$ or ${X!}"
    with pytest.raises(
        ConfigurationError, match=r"a\.yaml:2:12: agents\.a\.limits\.turns: the variable 'TURNS' is not set"
    ):
        read(ONE, a="name: a\nmax_turns: ${TURNS}\n")


def test_names_come_from_variables(read: Read):
    """Names of fleets, agents and variables may contain variables; an unset one is an error at its place."""
    files = {
        "a": "name: ${TEAM}-reviewer\nwork_source: {type: github, repo: o/r, auth: {token_env: '${WHICH:-GH}_TOKEN'}}\n",
        "low__herdctl": "fleet: {name: '${TEAM}'}\nagents: [{path: b.yaml}]\n",
        "low__b": "name: b\nhooks: {on_error: [{type: discord, channel_id: 1, bot_token_env: '${TEAM}_BOT'}]}\n",
    }
    text = "fleet: {name: 'crew-${TEAM}'}\nfleets: [{path: low}]\nagents: [{path: a.yaml}]\n"
    fleet = read(text, environ={"TEAM": "shop"}, **files)
    assert (fleet.settings.name, list(fleet.agents)) == ("crew-shop", ["shop-reviewer", "shop.b"])
    assert list(fleet.agents["shop-reviewer"].settings.secrets) == ["GH_TOKEN"]
    assert list(fleet.agents["shop.b"].settings.secrets) == ["shop_BOT"]
    with pytest.raises(ConfigurationError, match=r"a\.yaml:1:7: name: the variable 'TEAM' is not set"):
        read(ONE, **files)


def test_all_mistakes_are_reported_at_once(read: Read):
    """One error lists the mistakes of every file, of whatever kind."""
    with pytest.raises(ConfigurationError) as caught:
        read(
            "agents: [{path: a.yaml}, {path: missing.yaml}, b, {path: c.yaml}]\nfleets: {}\n",
            a="name: a\nruntime: gpu\nschedules: {s: {type: interval, interval: x}, t: {type: cron}}\n",
            c="name: c\ndocker: {memory: [], volumes: [x]}\n",
        )
    message = str(caught.value)
    for place in (
        r"a.yaml:2:10: runtime",
        r"a.yaml:3:43: schedules.s.interval",
        r"a.yaml:3:50: schedules.t",
        r"c.yaml:2:18: docker.memory",
        r"c.yaml:2:32: docker.volumes.0",
        r"herdctl.yaml:1:33: agents.1.path",
        r"herdctl.yaml:1:48: agents.2",
        r"herdctl.yaml:2:9: fleets",
    ):
        assert place in message, message


def test_a_file_of_ours_may_include_one(fleets: Fleets):
    """ringfence.yaml includes a herdctl fleet like one of its own: sections, name and overrides apply."""
    file = fleets(
        "fleet: {name: Shop}\nfleets: [{path: low}]\nagents: [{path: a.yaml}]\nweb: {enabled: true}\n",
        a="name: a\n",
        low__herdctl="fleet: {name: low}\nagents: [{path: b.yaml}]\n",
        low__b="name: b\n",
    )
    own = file.with_name("ringfence.yaml")
    own.write_text(
        "limits: {tokens: 5}\nagents: {mine: {}}\ninclude:\n  - file: herdctl.yaml\n"
        "    overrides: {limits: {turns: 4}, agents: {low.b: {priority: 2}}}\n"
    )
    fleet = load_fleet(own, environ={})
    assert list(fleet.agents) == ["mine", "shop.a", "shop.low.b"]
    agent = fleet.agents["shop.low.b"].settings
    assert (agent.limits.tokens, agent.limits.turns, agent.priority) == (5, 4, 2)
    assert [note.key for note in fleet.notes] == ["fleet.name", "session.timeout", "session.timeout", "web"]
    own.write_text("include: [{file: herdctl.yaml, overrides: {agents: {zz: {priority: 2}}}}]\n")
    with pytest.raises(
        ConfigurationError, match=r"ringfence\.yaml:1:\d+: overrides: .* has no agent 'zz'; it has a"
    ):
        load_fleet(own, environ={})


def test_every_file_that_was_read_is_known(read: Read, tmp_path: Path):
    """All files that were read are listed, so that the daemon can watch them."""
    fleet = read(
        "fleets: [{path: low}]\nagents: [{path: a.yaml}]\n",
        a="name: a\n",
        low__herdctl="agents: [{path: b.yaml}]\n",
        low__b="name: b\n",
    )
    names = [str(document.file.relative_to(tmp_path / "herd")) for document in fleet.documents]
    assert sorted(names) == ["a.yaml", "herdctl.yaml", "low/b.yaml", "low/herdctl.yaml"]


@pytest.mark.parametrize(
    ("text", "files", "message"),
    [
        (
            "fleets: [{path: low}]",
            {"low__herdctl": "fleets: [{path: ..}]"},
            r"low/herdctl\.yaml:1:17: .* name each other",
        ),
        ("fleets: [{path: .}]", {}, r"herdctl\.yaml:1:17: fleets\.0\.path: the fleets name each other"),
        (ONE, {}, r"herdctl\.yaml:1:17: agents\.0\.path: '.*a\.yaml' cannot be read"),
        ("agents: [{path: .}]", {}, r"herdctl\.yaml:1:17: .*not a regular file"),
        ("agents: [{path: /dev/zero}]", {}, r"herdctl\.yaml:1:17: .*not a regular file"),
        ("agents: {a: {}}", {}, r"herdctl\.yaml:1:9: agents: write a list"),
        ("agents: [a.yaml]", {}, r"herdctl\.yaml:1:10: agents\.0: write a mapping with a `path`"),
        ("agents: [{path: '${NOT_SET}'}]", {}, r"herdctl\.yaml:1:17: .*'NOT_SET' is not set"),
        ('agents: [{path: "a\\0b"}]', {}, r"herdctl\.yaml:1:17: "),
        (ONE, {"a": "description: x"}, r"a\.yaml:1:1: name: an agent needs a name"),
        (ONE, {"a": "name: [x]"}, r"a\.yaml:1:7: name: "),
        (ONE, {"a": "name: '../..'"}, r"a\.yaml:1:7: name: .* cannot be the name"),
        (
            "agents: [{path: a.yaml}, {path: a.yaml}]",
            {"a": "name: a"},
            r"a\.yaml:1:7: name: there are two agents 'a'",
        ),
        (ONE, {"a": "name: a\nmax_turns: lots"}, r"a\.yaml:2:12: .*limits\.turns: 'lots'"),
        (
            "agents: [{path: a.yaml, overrides: {max_turns: lots}}]",
            {"a": "name: a"},
            r"herdctl\.yaml:1:48: .*limits\.turns: 'lots'",
        ),
        (ONE, {"a": "name: a\nruntime: gpu"}, r"a\.yaml:2:10: runtime: write one of sdk, cli"),
        (
            ONE,
            {"a": "name: a\nschedules: {s: {type: interval, interval: banana}}"},
            r"a\.yaml:2:43: .* is not an interval",
        ),
        (
            ONE,
            {"a": "name: a\nschedules: {s: {type: cron, cron: '99 99 * * *'}}"},
            r"a\.yaml:2:35: .*schedules\.s\.cron",
        ),
        (ONE, {"a": "name: a\nx: &a 1"}, r"a\.yaml:2:4: anchors and aliases are not read"),
        (ONE, {"a": "name: a\nx: " + "[" * 40}, r"a\.yaml:2:\d+: nested deeper"),
        (ONE, {"a": "name: a\nx: '" + "y" * 70_000 + "'"}, r"herdctl\.yaml:1:17: .*larger than 65536 bytes"),
    ],
    ids=lambda each: None if isinstance(each, dict) else str(each)[:40],
)
def test_mistakes_are_told_at_their_place(read: Read, text: str, files: dict[str, str], message: str):
    """An error in any of herdctl's files names file, line and column."""
    with pytest.raises(ConfigurationError, match=message):
        read(text, **files)


def test_fleets_are_not_deeper_than_is_sane(read: Read):
    """Fleets may be nested to a limited depth."""
    files = {f"f{number}": f"fleets: [{{path: f{number + 1}.yaml, name: n}}]" for number in range(12)}
    with pytest.raises(ConfigurationError, match=r"f6\.yaml:1:17: fleets\.0\.path: more than 8 fleets deep"):
        read("fleets: [{path: f0.yaml, name: n}]", **files)


@pytest.mark.slow
def test_fleets_that_multiply_end(read: Read):
    """A few files that include each other many times end at a limit of files."""
    files = {
        f"f{number}": "fleets: [" + ", ".join(f"{{path: f{number + 1}.yaml}}" for _ in range(30)) + "]"
        for number in range(6)
    }
    with pytest.raises(ConfigurationError, match="more than 1000 files are named"):
        read("fleets: [{path: f0.yaml}]", f6="agents: []", **files)


@pytest.mark.slow
def test_defaults_that_multiply_end(read: Read):
    """Large defaults that very many agents inherit end at a limit of values."""
    env = ", ".join(f"V{number}: x" for number in range(4500))
    agents = ", ".join(f"{{path: a{number}.yaml}}" for number in range(30))
    files = {f"a{number}": f"name: a{number}\n" for number in range(30)}
    with pytest.raises(
        ConfigurationError, match=r"herdctl\.yaml:2:\d+: agents\.22: .* more than 100000 values"
    ):
        read(f"defaults: {{docker: {{env: {{{env}}}}}}}\nagents: [{agents}]\n", **files)


def test_an_env_file_is_named(read: Read, tmp_path: Path):
    """A note says that the variables of a `.env` file beside the fleet are not read."""
    (tmp_path / "herd").mkdir()
    (tmp_path / "herd" / ".env").write_text("A=secret\n")
    (note,) = read("agents: []\n").notes
    assert (note.key, note.kind) == (".env", "left_out")


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.yaml"])
def test_links_lead_nowhere(fleets: Fleets, target: str):
    """A symbolic link among a fleet's files is refused with the place that names it."""
    file = fleets("agents: [{path: a.yaml}]\n")
    (file.parent.parent / "outside.yaml").write_text("name: a\n")
    (file.parent / "a.yaml").symlink_to(target)
    with pytest.raises(ConfigurationError, match=r"herdctl\.yaml:1:17: .*symbolic link"):
        load_fleet(file, environ={})


def test_links_of_directories_lead_nowhere(fleets: Fleets):
    """A directory link that leaves the fleet's directory is refused; a path that openly leads out is accepted."""
    file = fleets("agents: [{path: sub/a.yaml}]\n")
    outside = file.parent.parent / "outside"
    outside.mkdir()
    (outside / "a.yaml").write_text("name: a\n")
    (file.parent / "sub").symlink_to(outside)
    with pytest.raises(ConfigurationError, match=r"herdctl\.yaml:1:17: .*a link leads out of"):
        load_fleet(file, environ={})
    file.write_text("agents: [{path: ../outside/a.yaml}]\n")
    assert list(load_fleet(file, environ={}).agents) == ["a"]


def test_pipes_are_not_waited_for(fleets: Fleets):
    """A pipe in place of an agent's file is refused without waiting."""
    file = fleets(ONE)
    os.mkfifo(file.parent / "a.yaml")
    with pytest.raises(ConfigurationError, match=r"herdctl\.yaml:1:17: .*not a regular file"):
        load_fleet(file, environ={})


def test_what_cannot_be_read_is_told(fleets: Fleets):
    """A file that cannot be read is reported with the place that names it."""
    file = fleets(ONE, a="name: a\n")
    (file.parent / "a.yaml").chmod(0)
    if os.access(file.parent / "a.yaml", os.R_OK):
        pytest.skip("root reads every file")
    with pytest.raises(ConfigurationError, match=r"herdctl\.yaml:1:17: .*Permission denied"):
        load_fleet(file, environ={})
