"""Secrets: where they come from, that they stay outside, and that no record has them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.promises.product import Ended, Product, says

VALUE = "s3cr3t-value-0123456789"


def everywhere(product: Product, *ended: Ended) -> str:
    """All text of the state directory and of what commands printed."""
    texts = [each.out + each.err for each in ended]
    for folder, _, files in os.walk(product.state):
        texts += [Path(folder, name).read_text(errors="replace") for name in files]
    return "\n".join(texts)


def test_values_of_the_environment(product: Product) -> None:
    """A value that is in the caller's environment under a name of secrets is in no record, wherever it comes up."""
    turns = [says(f"The value is {VALUE}.", f"echo {VALUE} > out; cat out"), says("done")]
    given: dict[str, Any] = {"SHOP_API_TOKEN": VALUE}
    run = product.run(product.script(*turns), prompt=f"Use {VALUE}.", **given)
    shown = product("runs show", "last")
    exported = product("runs export", "last")
    run_directory = product.file("run", run=product.runs()[0])
    journal = (run_directory / "journal.jsonl").read_text()
    assert VALUE not in journal
    assert VALUE not in run.out + run.err + shown.out + exported.out
    assert product.does("runs verify", "last")


def test_encoded_values(product: Product) -> None:
    """A secret is taken out of records in base64, hexadecimal and percent encoding, too."""
    value = "s3cr3t/value+0123456789"
    command = (
        f"printf '%s' '{value}' | base64; printf '%s' '{value}' | od -An -tx1 | tr -d ' \\n'; "
        "python3 -c \"import urllib.parse as u; print(u.quote(input(), safe=''))\" <<< "
        f"'{value}'"
    )
    given: dict[str, Any] = {"SHOP_API_TOKEN": value}
    product.run(product.script(says("", command), says("done")), **given)
    (returned,) = product.recorded("tool.returned")
    for encoded in ("czNjcjN0L3ZhbHVlKzAxMjM0NTY3ODk", "7333637233742f76616c75652b", "s3cr3t%2Fvalue%2B"):
        assert encoded not in json.dumps(returned)


def test_secrets_of_the_environment_stay_outside(product: Product) -> None:
    """Nothing of the caller's environment is inside, secrets least of all."""
    given: dict[str, Any] = {"SHOP_API_TOKEN": VALUE, "ANTHROPIC_API_KEY": VALUE}
    ended = product("exec", "--", "sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline; true", **given)
    assert VALUE not in ended.out


SOURCES = {
    "variable": "env:SHOP_TOKEN",
    "file": "file:{place}/secret",
    "program": {"cmd": ["printf", "%s", VALUE]},
}


@pytest.fixture(params=SOURCES)
def configured(request: pytest.FixtureRequest, product: Product) -> Product:
    """A product with a secret `shop` from each kind of source."""
    file = product.place / "secret"
    file.write_text(VALUE)
    file.chmod(0o600)
    source = SOURCES[request.param]
    source = source.format(place=product.place) if isinstance(source, str) else source
    product.configure(product.settings, secrets={"shop": source})
    product.environment["SHOP_TOKEN"] = VALUE
    return product


def test_sources(configured: Product) -> None:
    """A secret comes from a variable, a file or a program; that it can be had is told, its value never."""
    ended = configured.does("secrets test", "shop")
    listed = configured.does("secrets ls", "--json")
    assert "shop" in listed.out
    assert VALUE not in ended.out + ended.err + listed.out + listed.err


BAD_SOURCES: dict[str, Any] = {
    "variable that is not set": "env:NOT_SET_AT_ALL",
    "file that is not there": "file:/no/secret",
    "program that fails": {"cmd": ["false"]},
    "program that is not there": {"cmd": ["/no/program"]},
    "program that says nothing": {"cmd": ["true"]},
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_sources_that_give_nothing(product: Product, case: str) -> None:
    """A secret that cannot be had ends with 77, or 75 where its source is away, and a line with its name."""
    product.configure(product.settings, secrets={"shop": BAD_SOURCES[case]})
    ended = product("secrets test", "shop")
    assert ended.code in {75, 77}
    (line,) = ended.err.strip().splitlines()
    assert "shop" in line


def test_a_file_that_others_may_write(product: Product) -> None:
    """A secret's file that others may write is refused."""
    file = product.place / "secret"
    file.write_text(VALUE)
    file.chmod(0o666)
    product.configure(product.settings, secrets={"shop": f"file:{file}"})
    assert product("secrets test", "shop").code == 77


def test_an_unknown_secret(product: Product) -> None:
    """A secret that is not configured is a usage error that names it."""
    product("secrets test", "nothing").fails_as("usage", "nothing")


def test_listing_asks_no_source(product: Product) -> None:
    """`secrets ls` runs no program to list it."""
    mark = product.place / "ran"
    product.configure(product.settings, secrets={"shop": {"cmd": ["touch", str(mark)]}})
    product.does("secrets ls")
    assert not mark.exists()


def swap(product: Product) -> None:
    """Configure a secret that the gate puts into requests to one host."""
    rule = {"secret": "shop", "host": "api.example.com", "env": "SHOP_KEY"}
    product.configure(
        product.settings,
        secrets={"shop": {"cmd": ["printf", "%s", VALUE]}},
        egress={"allow": ["api.example.com"], "swap": [rule]},
    )


def test_a_placeholder_is_inside(product: Product) -> None:
    """Of a credential for another host a placeholder is inside, and the lease of it is recorded."""
    swap(product)
    ended = product.shell('echo "$SHOP_KEY"; cat "$SSL_CERT_FILE" | head -c 10')
    assert ended.code == 0
    assert ended.out.split()[0]
    assert VALUE not in everywhere(product, ended).replace(product.settings.read_text(), "")
    assert len(product.recorded("secret.leased")) == len(product.recorded("secret.revoked")) == 1


def test_a_swap_for_a_host_that_is_not_allowed(product: Product) -> None:
    """A credential for a host that is not allowed keeps the command from starting: exit code 4."""
    swap(product)
    assert product("exec", "--allow", "other.example", "--", "touch", "made").ends_as("refused")
    assert not (product.project / "made").exists()


def test_a_standing_sandbox_has_no_swaps(product: Product) -> None:
    """A standing sandbox is lent no credential of another host."""
    swap(product)
    assert product("sandbox create", "box").code != 0
    assert product.does("sandbox ls", "--json").json == []


def test_a_secret_that_cannot_be_had_keeps_a_run_from_starting(product: Product) -> None:
    """No command is run without the secret that it was promised."""
    swap(product)
    text = product.settings.read_text().replace('"printf"', '"false"')
    product.settings.write_text(text)
    assert product.exec("touch", "made").code in {75, 77}
    assert not (product.project / "made").exists()


def test_revocation(product: Product) -> None:
    """When a run is over, the program that revokes a lease is run, with the value as its input."""
    swap(product)
    place = product.place / "revoked"
    sections = json.loads(product.settings.read_text())
    sections["secrets"]["shop"]["revoke"] = ["tee", str(place)]
    product.settings.write_text(json.dumps(sections))
    product.exec("true")
    assert place.read_text().strip() == VALUE


def test_injection_is_a_loosening(product: Product) -> None:
    """`--auth inject` puts the models' credential inside, tells it and records it; no record has the value."""
    given: dict[str, Any] = {"ANTHROPIC_API_KEY": VALUE}
    ended = product("exec", "--auth", "inject", "--", "sh", "-c", "echo $ANTHROPIC_API_KEY", **given)
    assert ended.out.strip() == VALUE
    assert ended.err.strip()
    assert product.recorded("policy.loosened")
    assert VALUE not in everywhere(product)


def test_a_variable_that_was_given(product: Product) -> None:
    """What `--env` gives is inside, and a secret of it still in no record."""
    ended = product("exec", "--env", f"MY_TOKEN={VALUE}", "--", "sh", "-c", "echo $MY_TOKEN")
    assert ended.out.strip() == VALUE
    assert VALUE not in everywhere(product)


def test_errors_do_not_quote_secrets(product: Product) -> None:
    """An error that would quote a secret value does not."""
    given: dict[str, Any] = {"SHOP_API_TOKEN": VALUE}
    ended = product("diff", VALUE, **given)
    assert ended.code == 2
    assert VALUE not in ended.err
