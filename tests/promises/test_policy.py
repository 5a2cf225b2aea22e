"""What is refused before anything is started, and what the policy says of itself."""

import json
import os
import stat

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Product

WORKSPACES = {
    "root": "/",
    "system": "/etc",
    "below system": "/usr/lib",
    "temporary": "/tmp",
    "kernel": "/proc",
    "home": "{product.home}",
    "above a home": "{product.place}",
    "state": "{product.state}",
    "git directory": "{product.project}/.git",
}


@pytest.mark.parametrize("case", WORKSPACES)
def test_workspaces_that_are_refused(shared: Product, case: str) -> None:
    """A directory of the system, a home, the state directory or a git directory is no workspace: exit code 4."""
    shared.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = WORKSPACES[case].format(product=shared)
    ended = shared("exec", "-C", place, "--mode", "read_only", "--", "true")
    assert ended.ends_as("refused")
    assert place in ended.err


def test_links_to_a_workspace_are_resolved_first(product: Product) -> None:
    """A link to a directory that is refused is refused."""
    link = product.project / "link"
    link.symlink_to(product.home)
    assert product("exec", "-C", link, "--", "true").ends_as("refused")


MOUNTS = {
    "root": ("/", "/x"),
    "system": ("/etc", "/x"),
    "device": ("/dev/null", "/x"),
    "home": ("{product.home}", "/x"),
    "credentials": ("{product.home}/.ssh", "/x"),
    "records": ("{product.state}", "/x"),
    "socket": ("{product.place}/socket", "/x"),
    "over the system": ("/usr/share", "/usr"),
    "over the workspace": ("/usr/share", "{product.project}"),
}


@pytest.mark.parametrize("case", MOUNTS)
def test_mounts_that_are_refused(product: Product, case: str) -> None:
    """What shows the machine, credentials, records, sockets or devices, or hides the sandbox's own, is not mounted."""
    (product.home / ".ssh").mkdir()
    product.state.mkdir(mode=0o700, parents=True)
    os.mknod(product.place / "socket", stat.S_IFSOCK | 0o666)
    source, target = (text.format(product=product) for text in MOUNTS[case])
    product.configure(product.settings, sandbox={"mounts": [{"source": source, "target": target}]})
    assert product.exec("touch", "made").ends_as("refused")
    assert not (product.project / "made").exists()


def test_mounts(product: Product) -> None:
    """What the configuration mounts can be read inside, and written only where it says so."""
    given = product.place / "given"
    given.mkdir(mode=0o755)
    (given / "file").write_text("text\n")
    product.configure(product.settings, sandbox={"mounts": [{"source": str(given), "target": "/given"}]})
    assert product.shell("cat /given/file; echo x > /given/new").out == "text\n"
    assert not (given / "new").exists()


REFUSED = {
    "library loaded first": (("--env", "LD_PRELOAD=/x.so"), "LD_PRELOAD"),
    "metadata service": (("--allow", "169.254.169.254"), "169.254.169.254"),
    "metadata service, forwarded": (("--forward", "x:8080=169.254.169.254:80"), "169.254.169.254"),
    "engine's port": (("--forward", "x:8080=127.0.0.1:2375"), "2375"),
    "image without a tag": (("--sandbox", "docker", "--image", "localhost/x"), "localhost/x"),
    "latest image": (("--sandbox", "docker", "--image", "localhost/x:latest"), "localhost/x:latest"),
    "no image's name": (("--sandbox", "docker", "--image", "a b"), "a b"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_are_refused(shared: Product, case: str) -> None:
    """What would lead to credentials, to an engine, or past the fence is refused by name: exit code 4."""
    options, value = REFUSED[case]
    ended = shared("exec", *options, "--", "true")
    assert ended.ends_as("refused")
    assert value in ended.err.splitlines()[-1]


def test_images_of_other_registries(product: Product) -> None:
    """Where registries are named, images of others are refused; with `digest_only` those without a digest."""
    product.configure(product.settings, sandbox={"registries": ["registry.example.com"]})
    words = ("--sandbox", "docker", "--image")
    assert product("exec", *words, "docker.io/library/x:1", "--", "true").ends_as("refused")
    product.configure(product.settings, sandbox={"digest_only": True})
    assert product("exec", *words, "registry.example.com/x:1", "--", "true").ends_as("refused")


def test_show(shared: Product, fence: Fence) -> None:
    """`policy show --json` opens a sandbox and says what holds in it: no network, limits, and who enforces them."""
    found = shared.does("policy show", *fence, "--json").json
    assert found["backend"] == fence[1]
    assert found["network"] == "none"
    assert found["uid"] != 0
    assert found["limits"]["memory"] == 2 << 30
    assert {"memory", "cpus", "pids", "disk"} <= found["enforced"].keys()
    assert found["loosened"] == []


def test_show_for_people(shared: Product) -> None:
    """`policy show --rules` prints also what is refused: paths, and system calls."""
    out = shared.does("policy show", "--rules").out
    assert all(word in out for word in ("mount", "ptrace", ".envrc", str(shared.project)))


EXPLAINED = {
    "nothing granted": ("https://pypi.org/", (), False),
    "preset": ("https://pypi.org/simple/", ("packages",), True),
    "not of the preset": ("https://upload.pypi.org/", ("packages",), False),
    "host": ("https://a.example.com/", ("a.example.com",), True),
    "host below": ("https://b.a.example.com/", ("a.example.com",), False),
    "wildcard": ("https://b.example.com/", ("*.example.com",), True),
    "wildcard's own name": ("https://example.com/", ("*.example.com",), False),
    "port": ("https://example.com:8443/", ("example.com:8443",), True),
    "other port": ("https://example.com/", ("example.com:8443",), False),
    "case": ("https://EXAMPLE.com/", ("example.COM",), True),
    "suffix of a name": ("https://notexample.com/", ("example.com",), False),
    "loopback by another name": ("http://0x7f.1/", ("packages",), False),
    "metadata": ("http://169.254.169.254/", ("open",), False),
    "open": ("https://anything.example/", ("open",), True),
    "private where all is open": ("http://10.1.2.3/", ("open",), False),
    "address": ("http://10.1.2.3/", ("10.1.2.3",), True),
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_explain(shared: Product, case: str) -> None:
    """`policy explain` says whether an address may be reached, by which rule: exit code 0 if it may, else 4."""
    url, granted, is_allowed = EXPLAINED[case]
    words = [word for each in granted for word in ("--allow", each)]
    ended = shared("policy explain", url, *words, "--json")
    assert (ended.code, ended.json["allowed"]) == ((0, True) if is_allowed else (4, False))
    assert ended.json["rule"]


def test_denied_hosts_win(product: Product) -> None:
    """A host that is denied stays refused, whatever is allowed."""
    product.configure(product.settings, egress={"allow": ["*.example.com"], "deny": ["a.example.com"]})
    assert product("policy explain", "https://a.example.com/").code == 4
    assert product("policy explain", "https://b.example.com/").code == 0


def test_methods_and_paths(product: Product) -> None:
    """A rule with methods and paths opens plain HTTP to them, and no TLS."""
    rule = {"host": "deb.example.com", "methods": ["GET"], "paths": ["/debian/*"]}
    product.configure(product.settings, egress={"allow": [rule]})

    def code(*words: str) -> int:
        return product("policy explain", *words).code

    assert code("http://deb.example.com/debian/x") == 0
    assert code("http://deb.example.com/debian/x", "--method", "POST") == 4
    assert code("http://deb.example.com/other") == 4
    assert code("https://deb.example.com/debian/x") == 4


def test_expectations(shared: Product) -> None:
    """`policy test` compares a file of expectations: exit code 0 if all hold, 3 if one differs, which it names."""
    file = shared.place / "expected.yaml"
    rows = [{"url": "https://pypi.org/", "allowed": True}, {"url": "https://evil.example/", "allowed": False}]
    file.write_text(json.dumps(rows))
    shared.does("policy test", file, "--allow", "packages")
    ended = shared("policy test", file)
    assert ended.code == 3
    assert "pypi.org" in ended.out + ended.err


def test_expectations_that_are_wrong(shared: Product) -> None:
    """A file that is no list of expectations is told with its place."""
    file = shared.place / "wrong.yaml"
    file.write_text("- {url: 'https://a/', alowed: true}\n")
    ended = shared("policy test", file)
    assert ended.code != 0
    assert f"{file}:1:" in ended.err
