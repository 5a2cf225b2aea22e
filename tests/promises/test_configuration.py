"""`ringfence.yaml`, variables and options: which is stronger, what an untrusted file may say, and what is wrong."""

import json
import os
from typing import Any

import pytest
from tests.promises.product import Product


def settings(product: Product, *words: str, **variables: str) -> dict[str, Any]:
    """The effective configuration."""
    found: dict[str, Any] = product.does("config show", "--json", *words, **variables).json["settings"]
    return found


def test_defaults(shared: Product) -> None:
    """Without any file there are limits on everything, no network, no credential inside, and nothing is loosened."""
    found = settings(shared)
    assert found["sandbox"]["network"] == "none"
    assert found["sandbox"]["memory"] == 2 << 30
    assert found["sandbox"]["pids"] == 512
    assert found["limits"]["wall_clock"] == 1800
    assert found["limits"]["turns"] == 60
    assert found["egress"]["allow"] == []
    assert found["auth"] == "keyless"
    assert found["unsafe"] == []


def test_layers(product: Product) -> None:
    """A variable is stronger than the project's file, that is stronger than one's own, and that than the default."""
    product.configure(product.settings, limits={"turns": 40, "tool_calls": 41, "tokens": 42})
    product.configure(limits={"turns": 30, "tool_calls": 31})
    limits = settings(product, RINGFENCE_LIMITS__TURNS="20")["limits"]
    assert [limits[name] for name in ("turns", "tool_calls", "tokens")] == [20, 31, 42]


def test_an_option_is_the_strongest(product: Product) -> None:
    """An option on the command line is stronger than a variable."""
    product("exec", "--memory", "300m", "--soft-limits", "--", "true", RINGFENCE_SANDBOX__MEMORY="1g")
    assert product.recorded("job.created")[0]["configuration"]["sandbox"]["memory"] == 300 << 20


def test_origins(product: Product) -> None:
    """`config show --origin` says for each value where it comes from, files with line and column."""
    file = product.configure(limits={"turns": 5})
    out = product.does("config show", "--origin", RINGFENCE_LIMITS__TOKENS="100").out
    lines = {line.partition(":")[0]: line for line in out.splitlines()}
    assert f"{file}:1:" in lines["limits.turns"]
    assert "RINGFENCE_LIMITS__TOKENS" in lines["limits.tokens"]
    assert "default" in lines["limits.tool_calls"]


def test_the_nearest_file_upwards(product: Product) -> None:
    """The project's file is the nearest one from the workspace upwards."""
    product.configure(limits={"turns": 5})
    product.write("sub/below/file")
    assert settings(product, "-C", str(product.project / "sub" / "below"))["limits"]["turns"] == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RINGFENCE_SANDBOX__MEMORY", "lots"),
        ("RINGFENCE_SANDBOX__MEMRY", "1g"),
        ("RINGFENCE_LIMITS__TURNS", "-1"),
        ("RINGFENCE_SANDBOX__MOUNTS", "[{"),
        ("RINGFENCE_FROBNICATE", "1"),
    ],
)
def test_variables_that_are_wrong(shared: Product, name: str, value: str) -> None:
    """A variable that is unknown or does not fit ends with 78 and one line that names it."""
    variables: dict[str, Any] = {name: value}
    shared("exec", "--", "true", **variables).fails_as("configuration", name)


def test_lists_in_variables(shared: Product) -> None:
    """Lists and mappings are written as JSON in variables; one variable of the sandbox may be given by itself."""
    found = settings(
        shared, RINGFENCE_SANDBOX__PROTECT='["tests/", "docs/"]', RINGFENCE_SANDBOX__ENV__ONE="1"
    )
    assert found["sandbox"]["protect"] == ["tests/", "docs/"]
    assert found["sandbox"]["env"] == {"ONE": "1"}


WRONG = {
    "unknown key": ("sandbox: {memry: 1g}\n", "1:11", "memry"),
    "unknown section": ("limits: {turns: 5}\nsandbocks: {}\n", "2:1", "sandbocks"),
    "no size": ("sandbox:\n  memory: lots\n", "2:11", "lots"),
    "no duration": ("limits:\n  wall_clock: soon\n", "2:15", "soon"),
    "too small": ("limits: {turns: -1}\n", "1:17", "-1"),
    "no choice": ("sandbox: {mode: sideways}\n", "1:17", "sideways"),
    "no mapping": ("sandbox: [1]\n", "1:10", "sandbox"),
    "no list": ("egress:\n  deny: 5\n", "2:9", "deny"),
    "no YAML": ("a: b: c\n", "1:5", ""),
    "alias": ("sandbox: &x {memory: 1g}\nrun: *x\n", "1:10", ""),
    "twice": ("sandbox: {memory: 1g}\nsandbox: {memory: 1g}\n", "2:1", "sandbox"),
    "NUL": ("\0", "1:1", ""),
    "host without a word": ("sandbox: {backend: host}\n", "1:20", "host"),
    "network without a word": ("sandbox: {network: bridge}\n", "1:20", "bridge"),
    "open without a word": ("egress: {allow: [open]}\n", "1:18", "open"),
    "inject without a word": ("auth: inject\n", "1:7", "inject"),
    "no loosening": ("unsafe: [everything]\n", "1:10", "everything"),
    "secret in plain text": ("secrets: {token: abcdefgh}\n", "1:18", "token"),
    "model's price": ("prices: {m: {input: dear}}\n", "1:21", "dear"),
    "host of a rule": ('egress: {allow: ["a b"]}\n', "1:18", "a b"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(product: Product, case: str) -> None:
    """A file that is wrong ends with 78 before anything is run, and one line with file, line, column and value."""
    text, place, value = WRONG[case]
    file = product.write("ringfence.yaml", text)
    product.exec("touch", "made").fails_as("configuration", f"{file}:{place}", value)
    assert not (product.project / "made").exists()


def test_a_file_that_is_too_large(product: Product) -> None:
    """A file of a megabyte is refused, in a line that names it."""
    file = product.write("ringfence.yaml", "# " + "x" * 1_000_000)
    product.exec("true").fails_as("configuration", file)


LOOSER: dict[str, dict[str, Any]] = {
    "more memory": {"sandbox": {"memory": "100g"}},
    "more processes": {"sandbox": {"pids": 100_000}},
    "more turns": {"limits": {"turns": 1000}},
    "more time": {"limits": {"wall_clock": "10h"}},
    "host of the web": {"egress": {"allow": ["example.com"]}},
    "mount": {"sandbox": {"mounts": [{"source": "/usr/share", "target": "/x"}]}},
    "forward": {"sandbox": {"forward": ["db:5432"]}},
    "variable": {"sandbox": {"env": {"A": "1"}}},
    "set-up": {"sandbox": {"setup": ["true"]}},
    "check": {"run": {"verify": "true"}},
    "model": {"run": {"model": "other"}},
    "system prompt": {"run": {"system_append": "Obey me."}},
    "own tools": {"tools": {"python": ["os:system"]}},
    "image": {"sandbox": {"image": "localhost/x:1"}},
    "client": {"client": {"args": ["--evil"]}},
    "secret": {"secrets": {"x": {"cmd": ["evil"]}}},
    "watchdogs": {"sandbox": {"soft_limits": True}},
    "engine": {"engine": {"label": "x"}},
    "tools of the provider": {"egress": {"provider_tools": ["web_search"]}},
}


@pytest.mark.parametrize("case", LOOSER)
def test_an_untrusted_file_cannot_loosen(product: Product, case: str) -> None:
    """A project's file that would loosen something is refused with its place, until it is trusted; nothing is run."""
    file = product.configure(**LOOSER[case])
    product.exec("touch", "made").fails_as("configuration", f"{file}:1:")
    assert not (product.project / "made").exists()


def test_trust(product: Product) -> None:
    """What `trust` is said of may loosen, as long as the file is as it was then; that is told and recorded."""
    file = product.configure(sandbox={"env": {"A": "1"}})
    product.does("trust", "--yes")
    ended = product.shell("echo [$A]")
    assert ended.out == "[1]\n"
    assert str(file) in ended.err
    assert product.recorded("policy.loosened")
    file.write_text(file.read_text() + " ")
    assert product.shell("true").ends_as("configuration")


def test_trust_is_listed_and_revoked(product: Product) -> None:
    """`trust --list` says what is trusted, and `--revoke` ends it."""
    file = product.configure(sandbox={"env": {"A": "1"}})
    product.does("trust", "--yes")
    (row,) = product.does("trust", "--list", "--json").json["trusted"]
    assert (row["file"], row["holds"]) == (str(file), True)
    product.does("trust", "--revoke")
    assert product.does("trust", "--list", "--json").json["trusted"] == []
    assert product.shell("true").ends_as("configuration")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "nothing", "end of input"])
def test_trust_has_to_be_said(product: Product, answer: str) -> None:
    """Without a yes nothing is trusted."""
    product.configure(sandbox={"env": {"A": "1"}})
    assert product("trust", stdin=answer).code != 0
    assert product.shell("true").ends_as("configuration")


def test_trust_shows_what_is_loosened(product: Product) -> None:
    """`trust` prints the file and each value that loosens something before it asks."""
    file = product.configure(sandbox={"env": {"GIVEN_BY_FILE": "1"}})
    out = product("trust", stdin="n\n").out
    assert str(file) in out
    assert "GIVEN_BY_FILE" in out


def test_an_untrusted_file_may_tighten(product: Product) -> None:
    """A project's file lowers limits, denies hosts and protects files without being trusted."""
    product.configure(limits={"turns": 3}, egress={"deny": ["example.com"]}, sandbox={"protect": ["kept/"]})
    product.write("kept/file", "k")
    assert product.shell("echo x > kept/file").code != 0
    assert settings(product)["limits"]["turns"] == 3


def test_files_of_others_need_no_trust_of_ones_own(product: Product) -> None:
    """One's own file may loosen without being trusted."""
    product.configure(product.settings, sandbox={"env": {"A": "1"}})
    assert product.shell("echo [$A]").out == "[1]\n"


def test_schema(shared: Product) -> None:
    """`config schema` prints a JSON Schema that knows the sections of a configuration."""
    found = shared.does("config schema").json
    assert {"sandbox", "run", "limits", "egress", "fleet", "agents"} <= found["properties"].keys()


def test_init(product: Product) -> None:
    """`init` writes a file with every key, which changes nothing, and its schema."""
    product.does("init")
    assert (product.project / "ringfence.yaml").read_text().count("\n") > 50
    before = settings(product, "-C", str(product.home))
    assert settings(product) == before
    assert [path for path in product.project.iterdir() if "schema" in path.name]


def test_init_overwrites_nothing(product: Product) -> None:
    """`init` leaves a file that is there, a usage error, unless it is told `--force`."""
    file = product.write("ringfence.yaml", "limits: {turns: 3}\n")
    product("init").fails_as("usage", file)
    assert file.read_text() == "limits: {turns: 3}\n"
    product.does("init", "--force")
    assert file.read_text() != "limits: {turns: 3}\n"


def test_init_follows_no_link(product: Product) -> None:
    """`init` writes through no link that a repository has in the place of its file."""
    target = product.place / "target"
    target.write_text("mine")
    (product.project / "ringfence.yaml").symlink_to(target)
    assert product("init", "--force").code in {0, 1, 2, 4}
    assert target.read_text() == "mine"


def test_secrets_are_not_shown(product: Product) -> None:
    """`config show` prints no value that looks like a secret by its name."""
    product.configure(product.settings, sandbox={"env": {"MY_TOKEN": "tell-nobody-1234"}})
    for words in ((), ("--json",), ("--origin",)):
        assert "tell-nobody" not in product.does("config show", *words).out


def test_configuration_is_recorded(product: Product) -> None:
    """The effective configuration of a run is in its record."""
    product.configure(limits={"turns": 7})
    product.does("exec", "--max-tokens", "9", "--max-cost-usd", "0.5", "--", "true")
    limits = product.recorded("job.created")[0]["configuration"]["limits"]
    assert (limits["turns"], limits["tokens"], limits["cost_usd"]) == (7, 9, 0.5)


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_what_is_no_file(product: Product, kind: str) -> None:
    """What is no file ends with 78 and a line that names it, and holds nothing up."""
    file = product.project / "ringfence.yaml"
    file.mkdir() if kind == "directory" else os.mkfifo(file)
    product.exec("true").fails_as("configuration", file)


def test_json_is_yaml(product: Product) -> None:
    """A configuration may be written as JSON."""
    product.write("ringfence.yaml", json.dumps({"limits": {"turns": 9}}, indent=1))
    assert settings(product)["limits"]["turns"] == 9
