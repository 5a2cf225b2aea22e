"""What is decided of a request, and by which rule."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.egress import Egress
from ringfence.config.host import read_host
from ringfence.egress.proxy.decision import Rules, Target, parse_target, preset_rules

NARROW = {"host": "a.example", "methods": ["GET"], "paths": ["/simple/*", "/one"]}
CASES: dict[str, tuple[list[Any], list[Any], str, str, bool, str]] = {
    "nothing is allowed": ([], [], "https://a.example/", "GET", False, "default"),
    "by name": (["a.example"], [], "https://A.Example./", "GET", True, "a.example"),
    "not what is below it": (["a.example"], [], "https://b.a.example/", "GET", False, "default"),
    "not what ends alike": (["a.example"], [], "https://ba.example/", "GET", False, "default"),
    "below a name": (["*.a.example"], [], "https://c.b.a.example/", "GET", True, "*.a.example"),
    "a name is not below itself": (["*.a.example"], [], "https://a.example/", "GET", False, "default"),
    "plain http": (["a.example"], [], "http://a.example/", "GET", True, "a.example"),
    "another port": (["a.example"], [], "https://a.example:8443/", "GET", False, "a.example"),
    "the port that is named": (["a.example:8443"], [], "a.example:8443", "GET", True, "a.example:8443"),
    "only that port": (["a.example:8443"], [], "https://a.example/", "GET", False, "a.example:8443"),
    "denied by name": (["a.example"], ["a.example"], "https://a.example/", "GET", False, "deny a.example"),
    "denied below a name": (
        ["b.a.example"], ["*.a.example"], "https://b.a.example/", "GET", False, "deny *.a.example",
    ),
    "denied on one port": (
        ["a.example"], ["a.example:80"], "http://a.example/", "GET", False, "deny a.example:80",
    ),
    "and not on another": (["a.example"], ["a.example:80"], "https://a.example/", "GET", True, "a.example"),
    "denied beside open": (["open"], ["a.example"], "https://a.example/", "GET", False, "deny a.example"),
    "open": (["open"], [], "https://anything.example:9/", "GET", True, "open"),
    "open is not private": (["open"], [], "http://10.0.0.1/", "GET", False, "private-address"),
    "nor loopback": (["open"], [], "https://0x7f.1/", "GET", False, "private-address"),
    "nor shared": (["open"], [], "https://100.64.0.1/", "GET", False, "private-address"),
    "nor unique local": (["open"], [], "https://[fd00::1]/", "GET", False, "private-address"),
    "never metadata": (["169.254.169.254", "open"], [], "http://169.254.169.254/", "GET", False, "never"),
    "never metadata by name": (
        ["metadata.google.internal"], [], "http://metadata.google.internal/", "GET", False, "never",
    ),
    "never multicast": (["224.0.0.1"], [], "http://224.0.0.1/", "GET", False, "never"),
    "never an engine": (["a.example:2375"], [], "a.example:2375", "GET", False, "never"),
    "a private address by its name": (["10.0.0.1"], [], "http://10.0.0.1/", "GET", True, "10.0.0.1"),
    "in every spelling": (["127.0.0.1:80"], [], "http://[::ffff:127.0.0.1]/", "GET", True, "127.0.0.1:80"),
    "plain http to 443": (["a.example"], [], "http://a.example:443/", "GET", False, "tls-only"),
    "a path": ([NARROW], [], "http://a.example/simple/x?y=1", "GET", True, "a.example GET /simple/*,/one"),
    "an exact path": ([NARROW], [], "http://a.example/one", "GET", True, "a.example GET /simple/*,/one"),
    "another path": ([NARROW], [], "http://a.example/two", "GET", False, "a.example GET /simple/*,/one"),
    "a path that climbs": (
        [NARROW], [], "http://a.example/simple/../two", "GET", False, "a.example GET /simple/*,/one",
    ),
    "a path that hides it": (
        [NARROW], [], "http://a.example/simple/%2e%2e/two", "GET", False, "a.example GET /simple/*,/one",
    ),
    "another method": ([NARROW], [], "http://a.example/one", "POST", False, "a.example GET /simple/*,/one"),
    "not in TLS": ([NARROW], [], "https://a.example/one", "GET", False, "a.example GET /simple/*,/one"),
    "a denied path": (
        ["a.example"], [{"host": "a.example", "paths": ["/x/*"]}], "http://a.example/x/1", "GET", False,
        "deny a.example /x/*",
    ),
    "a denied path that hides": (
        ["a.example"], [{"host": "a.example", "paths": ["/x/*"]}], "http://a.example/%78/1", "GET", False,
        "deny a.example /x/*",
    ),
    "a denied path, in TLS": (
        ["a.example"], [{"host": "a.example", "paths": ["/x/*"]}], "https://a.example/", "GET", False,
        "deny a.example /x/*",
    ),
    "a second path": (
        [{"host": "a.example", "methods": ["MOVE"], "paths": ["/x/*"]}], [], "http://a.example/x/1", "MOVE", False,
        "a.example MOVE /x/*",
    ),
    "a second path that may be denied": (
        ["a.example"], [{"host": "a.example", "paths": ["/x/*"]}], "http://a.example/y", "COPY", False,
        "deny a.example /x/*",
    ),
    "a preset": (["packages"], [], "https://pypi.org/", "GET", True, "packages: pypi.org"),
    "the model is no host": (["model"], [], "https://pypi.org/", "GET", False, "default"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_decided(name: str) -> None:
    """Each request is decided as it should be, and the rule that decides is named."""
    allow, deny, url, method, is_allowed, rule = CASES[name]
    decision = Rules(Egress(allow=allow, deny=deny)).decide(parse_target(url, method))
    assert (decision.is_allowed, decision.rule) == (is_allowed, rule)
    assert is_allowed or decision.reason


PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "198.18.0.1",
    "2002:7f00:1::",
]
NEVER = [
    "169.254.169.254", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "255.255.255.255",
    "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
]  # fmt: skip


@pytest.mark.parametrize("text", PRIVATE)
def test_private_answers(text: str) -> None:
    """A name that resolves to a private address is refused, unless a rule names the address."""
    address = ipaddress.ip_address(text)
    open_rules = Rules(Egress(allow=("open", "a.example")))
    refused = open_rules.check_address(address, 443, is_own=False)
    assert refused is not None
    assert refused.rule == "private-address"
    named = Rules(Egress(allow=(str(read_host(f"[{text}]" if ":" in text else text)),)))
    assert named.check_address(address, 443, is_own=False) is None
    refused = named.check_address(address, 8080, is_own=False)
    assert refused is not None


@pytest.mark.parametrize("text", NEVER)
def test_answers_that_nothing_opens(text: str) -> None:
    """Metadata, link-local, multicast and the like are refused whatever is granted."""
    rules = Rules(Egress(allow=("open",)))
    refused = rules.check_address(ipaddress.ip_address(text), 443, is_own=False)
    assert refused is not None
    assert refused.rule == "never"


def test_own_public_address() -> None:
    """This machine's own address is refused also where it is a public one, unless a rule names it."""
    address = ipaddress.ip_address("8.8.8.8")
    rules = Rules(Egress(allow=("open",)))
    assert rules.check_address(address, 443, is_own=False) is None
    refused = rules.check_address(address, 443, is_own=True)
    assert refused is not None
    assert refused.rule == "private-address"


def test_denied_address() -> None:
    """An address that is denied is refused under every name."""
    rules = Rules(Egress(allow=("open",), deny=("8.8.8.8",)))
    refused = rules.check_address(ipaddress.ip_address("8.8.8.8"), 443, is_own=False)
    assert refused is not None
    assert refused.rule == "deny 8.8.8.8"


def test_remedy_works() -> None:
    """What a refusal says would allow it, allows it."""
    for url in (
        "https://a.example/",
        "http://a.example/",
        "a.example:8443",
        "short:443",
        "https://[fd00::1]/",
    ):
        wanted = parse_target(url)
        remedy = Rules(Egress()).decide(wanted).remedy
        rule = remedy.split("--allow ", 1)[1].split(",", 1)[0]
        assert Rules(Egress(allow=(rule,))).decide(wanted).is_allowed, url


def test_packages_are_hosts_of_the_web() -> None:
    """The preset names hosts one by one, and no pattern, address or port of its own."""
    rules = preset_rules("packages")
    assert len(rules) == len({rule.host for rule in rules}) > 10
    assert not any(rule.is_pattern or rule.ports or rule.preset for rule in rules)
    assert {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "static.crates.io"} <= {
        rule.host for rule in rules
    }


@given(host=st.from_regex(r"[a-c.]{1,12}", fullmatch=True), port=st.integers(1, 65_535))
def test_nothing_is_allowed_by_nothing(host: str, port: int) -> None:
    """Without a rule, nothing is allowed."""
    try:
        name = read_host(host)
    except ValueError:
        return
    assert not Rules(Egress()).decide(Target(name, port)).is_allowed
