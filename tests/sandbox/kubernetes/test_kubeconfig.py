"""What a kubeconfig can have wrong: one line with the file, the next step and the exit code, and no secret in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.kubernetes.api_server import TOKEN, ApiServer, kubeconfig

from ringfence.errors import ExitCode, RingfenceError
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.kubernetes.cluster import open_cluster

_CA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCm5vCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
"""Base64 of a certificate that is none."""


async def _error(context: str | None = None) -> RingfenceError:
    with pytest.raises(RingfenceError) as raised:
        await open_cluster(context)
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 1200
    assert TOKEN not in text
    return raised.value


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("", ["no contexts"], id="empty"),
        pytest.param("hello", ["no mapping"], id="a word"),
        pytest.param(f"users:\n- token: {TOKEN}: {TOKEN}\n", [":2", "mapping values"], id="not YAML"),
        pytest.param("\x00", ["no kubeconfig"], id="control character"),
        pytest.param("a: *b", ["no kubeconfig"], id="alias of nothing"),
        pytest.param("clusters: []\nusers:", ["no contexts"], id="no contexts"),
        pytest.param("current-context: gone", ["'gone'", "--engine"], id="a context that is not there"),
        pytest.param("current-context: gone\ncontexts: 7", ["no kubeconfig"], id="a number of contexts"),
        pytest.param("clusters: 7\ncontexts: []", ["no kubeconfig"], id="a number"),
        pytest.param("clusters: [{name: a}]\ncontexts: []", ["'cluster'"], id="no cluster in one"),
        pytest.param("clusters: [x]\ncontexts: []", ["no kubeconfig"], id="a word for a cluster"),
        pytest.param(
            "users:\n- name: u\n  user: {token: [1]}\nclusters: []\ncontexts: []",
            ["no kubeconfig"],
            id="list",
        ),
    ],
)
async def test_a_file_that_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, words: list[str]
) -> None:
    """A wrong configuration, by its file; the line that is wrong is not repeated, as there may be a token in it."""
    file = tmp_path / "k"
    file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    error = await _error()
    assert error.exit_code == ExitCode.CONFIGURATION
    assert all(word in str(error) for word in [str(file), *words]), error


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        pytest.param(None, {"tls-server-name": "x"}, ["cluster 'c'", "tls-server-name"], id="server name"),
        pytest.param(
            None, {"proxy-url": f"http://u:{TOKEN}@p"}, ["proxy-url", "set HTTPS_PROXY"], id="proxy"
        ),
        pytest.param({"token": TOKEN, "as": "eve"}, {}, ["user 'u'", "'as'"], id="impersonation"),
        pytest.param(None, {"certificate-authority": "/nowhere"}, ["No such file"], id="no authority"),
        pytest.param(None, {"certificate-authority-data": _CA}, ["'dev'"], id="bad authority"),
        pytest.param(None, {"certificate-authority-data": "*"}, ["'dev'"], id="no base64"),
        pytest.param(
            {"client-certificate": "/nowhere", "client-key": "/nowhere"},
            {},
            ["No such file"],
            id="no client's",
        ),
        pytest.param({"client-certificate": "/nowhere"}, {}, ["'dev'", "without a key"], id="no key"),
        pytest.param({"auth-provider": {"name": "gcp"}}, {}, ["auth-provider"], id="auth provider"),
    ],
)
async def test_what_has_no_effect_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: dict[str, Any] | None,
    cluster: dict[str, Any],
    words: list[str],
) -> None:
    """A field that is not supported, or a certificate that is none: nothing is sent otherwise than the file says."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "k", "https://127.0.0.1:9", user, cluster)))
    error = await _error()
    assert error.exit_code == ExitCode.CONFIGURATION
    assert all(word in str(error) for word in words), error


async def test_unknown_contexts_name_the_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all files, and not more than one can read."""
    files = [kubeconfig(tmp_path / name, "http://127.0.0.1:9") for name in ("a", "b")]
    document = json.loads(files[1].read_text())
    document["contexts"] = [{"name": f"c{n:02}", "context": {"cluster": "c"}} for n in range(50)]
    files[1].write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, [*files, tmp_path / "gone"])))
    error = await _error("prod")
    assert error.exit_code == ExitCode.USAGE
    assert "'prod'" in str(error)
    assert "c00, c01" in str(error)
    assert str(error).endswith(", ...")
    async with await open_cluster("c49") as cluster:
        assert (cluster.context, cluster.namespace) == ("c49", "default")


async def test_without_a_current_context_one_is_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the option whose name is in the text."""
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    document = json.loads(file.read_text())
    del document["current-context"]
    file.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(file))
    error = await _error()
    assert error.exit_code == ExitCode.USAGE
    assert "--engine: dev" in str(error)
    async with await open_cluster("dev", "other") as cluster:
        assert (cluster.context, cluster.namespace) == ("dev", "other")


async def test_no_kubeconfig_says_where_it_was_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By KUBECONFIG, or in the home directory."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    assert str(tmp_path / "gone") in str(await _error())
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    error = await _error()
    assert error.exit_code == ExitCode.USAGE
    assert f"{tmp_path}/.kube/config" in str(error)
    assert "KUBECONFIG" in str(error)


@pytest.mark.parametrize("missing", ["clusters", "users"])
async def test_a_context_without_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The context and what it names are in the text."""
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    document = json.loads(file.read_text())
    document[missing] = []
    file.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(file))
    error = await _error()
    assert error.exit_code == ExitCode.CONFIGURATION
    assert "'dev'" in str(error)
    assert f"'{missing[0]}'" in str(error)


async def test_a_context_may_have_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for `kubectl proxy`, which has the credentials itself."""
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    document = json.loads(file.read_text())
    del document["contexts"][0]["context"]["user"]
    file.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(file))
    async with await open_cluster() as cluster:
        assert cluster.server == "http://127.0.0.1:9"


def _write(file: Path, **lists: Any) -> str:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({name.replace("_", "-"): value for name, value in lists.items()}))
    return str(file)


async def test_several_files_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api_server: ApiServer
) -> None:
    """As for kubectl: a context of one, its cluster of another, its user of a third; the first of a name wins whole."""
    api_server.tokens = {TOKEN}
    server = f"http://127.0.0.1:{api_server.port}"
    wrong = {"name": "u", "user": {"token": "of another", "client-certificate": "/nowhere"}}
    (tmp_path / "u").mkdir()
    (tmp_path / "u/token").write_text(TOKEN)
    (tmp_path / "token").write_text("of another")
    empty = tmp_path / "empty"
    empty.touch()
    files = [
        str(empty),
        _write(tmp_path / "x/k", contexts=[{"name": "dev", "context": {"cluster": "c", "user": "u"}}]),
        _write(
            tmp_path / "u/k", users=[{"name": "u", "user": {"tokenFile": "token"}}], current_context="dev"
        ),
        _write(tmp_path / "c/k", clusters=[{"name": "c", "cluster": {"server": server}}], users=[wrong]),
        _write(
            tmp_path / "last",
            current_context="other",
            contexts=[{"name": name, "context": {"cluster": "d", "user": "u"}} for name in ("dev", "other")],
            clusters=[{"name": name, "cluster": {"server": "http://127.0.0.1:9"}} for name in ("c", "d")],
        ),
    ]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    async with await open_cluster() as cluster:
        assert (cluster.context, cluster.server) == ("dev", server)
        await cluster.call("reach it", "GET", "/version")
    async with await open_cluster("other") as cluster:
        assert cluster.server == "http://127.0.0.1:9"


async def test_a_certificate_and_a_plugin_are_sought_beside_their_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not beside the file that has the context, nor in the current directory."""
    monkeypatch.chdir(tmp_path)
    context = {"name": "dev", "context": {"cluster": "c", "user": "u"}}
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}
    first = _write(tmp_path / "k", contexts=[context], clusters=[cluster], current_context="dev")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/plugin"}
    _write(tmp_path / "u/k", users=[{"name": "u", "user": {"exec": plugin}}])
    monkeypatch.setenv("KUBECONFIG", f"{first}:u/k")
    async with await open_cluster() as opened:
        with pytest.raises(RingfenceError, match=f"{tmp_path}/u/bin/plugin"):
            await opened.call("reach it", "GET", "/version")
    _write(tmp_path / "u/k", users=[{"name": "u", "user": {"client-certificate": "a", "client-key": "b"}}])
    (tmp_path / "u/a").write_text("no certificate")
    (tmp_path / "u/b").write_text("no key")
    assert "No such file" not in str(await _error())


async def test_a_name_that_no_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context that names it is in the text, with its own file."""
    context = {"name": "dev", "context": {"cluster": "c", "user": "u"}}
    files = [_write(tmp_path / "b"), _write(tmp_path / "a", contexts=[context], current_context="dev")]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    error = await _error()
    assert error.exit_code == ExitCode.CONFIGURATION
    assert str(error) == f"{files[1]}: context 'dev' names 'c', which no kubeconfig has"


@pytest.mark.parametrize(
    ("spec", "user", "content", "code"),
    [
        pytest.param({"engine": "prod"}, None, None, ExitCode.SANDBOX_START, id="no such context"),
        pytest.param({}, None, "hello", ExitCode.CONFIGURATION, id="no kubeconfig"),
        pytest.param({}, {"token": "expired"}, None, ExitCode.AUTHENTICATION, id="expired login"),
    ],
)
async def test_a_sandbox_that_cannot_be_opened_has_the_error_of_its_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    api_server: ApiServer,
    spec: dict[str, Any],
    user: dict[str, Any] | None,
    content: str | None,
    code: ExitCode,
) -> None:
    """Where a file or a login is to be mended, and not what was asked for, the exit code says which."""
    api_server.tokens = {TOKEN}
    file = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{api_server.port}", user)
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(RingfenceError) as raised:
        async with Sandbox.open(SandboxSpec(backend="kubernetes", image="example.com/x:1", **spec)):
            pass
    assert raised.value.exit_code == code, raised.value
