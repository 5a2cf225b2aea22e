"""Real clients inside, through the proxy, against mirrors of the tests' own, in the environment that a sandbox gets."""

import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.egress.proxy.conftest import Gated, Record, Web, run_here, sh

from ringfence.events import EgressDecided
from ringfence.sandbox import Sandbox

pytestmark = pytest.mark.slow


def needs(program: str) -> None:
    """Skip where a client is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


async def sh_if(sandbox: Sandbox, program: str, command: str) -> str | None:
    """What a shell command prints; None where an image does not have the client."""
    is_there = (await sandbox.run(["sh", "-c", f"{program} --version"])).ok
    return await sh(sandbox, command) if is_there else None


def there(said: str | None, program: str) -> str:
    """What was said; skips where the client was not there."""
    if said is None:
        pytest.skip(f"the image has no {program!r}")
    return said


def put(web: Web, path: str, data: bytes | str) -> None:
    """A file of the mirror."""
    file = web.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)


def wheel() -> bytes:
    """A package of Python."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("fenced.py", "WORD = 'through'\n")
        about = "fenced-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: fenced\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return data.getvalue()


async def test_pip(web: Web, gated: Gated, record: Record, backend: dict[str, Any]) -> None:
    """`pip install` takes a package from its public servers, which `packages` names."""
    put(web, "packages/fenced-1.0-py3-none-any.whl", wheel())
    link = "https://files.pythonhosted.org/packages/fenced-1.0-py3-none-any.whl"
    put(web, "simple/fenced/index.html", f'<a href="{link}">fenced-1.0-py3-none-any.whl</a>')
    async with gated("packages", **backend) as sandbox:
        said = await sh_if(
            sandbox,
            "python3 -m pip",
            "python3 -m pip install --isolated --cert $PIP_CERT -q --disable-pip-version-check --target t fenced"
            " && PYTHONPATH=t python3 -c 'import fenced; print(fenced.WORD)'",
        )
    assert there(said, "pip").strip().endswith("through"), said
    rules = {(event.host, event.rule) for event in record.of(EgressDecided)}
    assert rules == {
        ("pypi.org", "packages: pypi.org"),
        ("files.pythonhosted.org", "packages: files.pythonhosted.org"),
    }


def packed(files: dict[str, str]) -> bytes:
    """An archive as registries hand them out."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


async def test_npm(web: Web, gated: Gated, backend: dict[str, Any]) -> None:
    """`npm install` takes a package from its public registry."""
    data = packed(
        {
            "package/package.json": '{"name":"fenced","version":"1.0.0","main":"m.js"}',
            "package/m.js": "module.exports='through'",
        }
    )
    put(web, "fenced/-/fenced-1.0.0.tgz", data)
    dist = {
        "tarball": "https://registry.npmjs.org/fenced/-/fenced-1.0.0.tgz",
        "shasum": hashlib.sha1(data).hexdigest(),
    }
    about = {"name": "fenced", "version": "1.0.0", "dist": dist}
    put(
        web,
        "fenced/index.json",
        json.dumps({"name": "fenced", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": about}}),
    )
    env = {"npm_config_registry": "https://registry.npmjs.org/"}
    async with gated("packages", env=env, **backend) as sandbox:
        said = await sh_if(
            sandbox,
            "npm",
            "echo '{}' > package.json && npm install --no-audit --no-fund --loglevel=error fenced"
            """ && node -p 'require("fenced")'""",
        )
    assert there(said, "npm").strip().endswith("through"), said


async def test_git(web: Web, gated: Gated, tmp_path: Path, backend: dict[str, Any]) -> None:
    """`git clone https://...` brings a repository."""
    needs("git")
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("through\n")
    for command in (["git", "init", "-q"], ["git", "add", "."], ["git", "commit", "-qm", "x"]):
        run_here(*command, cwd=work)
    run_here("git", "clone", "-q", "--bare", str(work), str(web.root / "it.git"), cwd=tmp_path)
    run_here("git", "update-server-info", cwd=web.root / "it.git")
    async with gated("git.example", **backend) as sandbox:
        said = await sh(sandbox, "git clone -q https://git.example/it.git c && cat c/file")
    assert said.strip().endswith("through"), said


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_curl(web: Web, gated: Gated, scheme: str, backend: dict[str, Any]) -> None:
    """`curl` brings a file, encrypted or not."""
    put(web, "file", "through\n")
    async with gated("git.example", **backend) as sandbox:
        said = await sh_if(sandbox, "curl", f"curl -sS {scheme}://git.example/file")
    assert there(said, "curl") == "through\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "script",
    [
        "fetch(U).then(r => r.text()).then(console.log, e => console.log(String(e.cause)))",
        "require(U.split(':')[0]).get(U, r => r.pipe(process.stdout)).on('error', e => console.log(e.message))",
    ],
    ids=["fetch", "http.get"],
)
async def test_node(web: Web, gated: Gated, scheme: str, script: str) -> None:
    """Node.js goes through the proxy by itself; what is refused is told to the program in words."""
    needs("node")
    put(web, "file", "through")
    async with gated("git.example") as sandbox:
        good = await sh(
            sandbox, f"""node -e 'const U = "{scheme}://git.example/file"; {script.replace("'", '"')}'"""
        )
        bad = await sh(
            sandbox, f"""node -e 'const U = "{scheme}://other.example/"; {script.replace("'", '"')}'"""
        )
    assert good.strip() == "through"
    assert "other.example" in bad
    assert "is not allowed" in bad


async def test_node_to_itself(gated: Gated) -> None:
    """A server on the loopback inside is called directly."""
    needs("node")
    script = (
        'require("http").createServer((q, r) => r.end("own")).listen(8123, "127.0.0.1", async () => {'
        ' console.log(await (await fetch("http://127.0.0.1:8123/")).text()); process.exit() })'
    )
    async with gated("git.example") as sandbox:
        assert (await sh(sandbox, f"node -e '{script}'")).strip() == "own"


async def test_maven(web: Web, gated: Gated, authority: Any, tmp_path: Path) -> None:
    """`mvn` resolves from Maven Central."""
    needs("mvn")
    needs("keytool")
    pom = "<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>{}</artifactId>{}</project>"
    put(
        web,
        "maven2/g/parent/1/parent-1.pom",
        pom.format("parent", "<version>1</version><packaging>pom</packaging>"),
    )
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    run_here(
        "keytool", "-importcert", "-noprompt", "-alias", "t", "-file", "ca.pem", "-keystore", "trust",
        "-storepass", "changeit", cwd=tmp_path,
    )  # fmt: skip
    above = "<groupId>g</groupId><artifactId>parent</artifactId><version>1</version>"
    parent = f"<packaging>pom</packaging><parent>{above}</parent>"
    async with gated("packages") as sandbox:
        await sandbox.write_file("trust", (tmp_path / "trust").read_bytes())
        await sandbox.write_file("pom.xml", pom.format("child", parent).encode())
        said = await sh(
            sandbox,
            'MAVEN_OPTS="$MAVEN_OPTS -Djavax.net.ssl.trustStore=$PWD/trust" '
            "mvn -B -Dmaven.repo.local=$PWD/m2 validate && ls m2/g/parent/1",
        )
    assert "parent-1.pom" in said, said


async def test_apt(web: Web, gated: Gated, tmp_path: Path) -> None:
    """`apt-get update` and `download` bring a package from the archive."""
    needs("apt-get")
    needs("dpkg-deb")
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: fenced\nVersion: 1\nArchitecture: all\nMaintainer: T <t@example.com>\nDescription: t\n"
    )
    (web.root / "debian").mkdir()
    run_here("dpkg-deb", "--build", str(package), str(web.root / "debian/fenced_1_all.deb"), cwd=tmp_path)
    deb = (web.root / "debian/fenced_1_all.deb").read_bytes()
    put(
        web,
        "debian/Packages",
        f"Package: fenced\nVersion: 1\nArchitecture: all\nMaintainer: T <t@example.com>\nFilename: ./fenced_1_all.deb\n"
        f"Size: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\nDescription: t\n",
    )
    async with gated("packages") as sandbox:
        await sandbox.write_file("sources.list", b"deb [trusted=yes] http://deb.debian.org/debian ./\n")
        said = await sh(
            sandbox,
            "mkdir -p l/partial c/archives/partial && o='-o Dir::Etc::sourcelist='$PWD'/sources.list"
            " -o Dir::Etc::sourceparts=- -o Dir::State::lists='$PWD'/l -o Dir::Cache='$PWD'/c -o APT::Sandbox::User='"
            " && apt-get -qq $o update && apt-get -qq $o download fenced && ls",
        )
    assert "fenced_1_all.deb" in said, said


async def test_cargo(web: Web, gated: Gated) -> None:
    """`cargo fetch` asks the sparse index and brings a crate."""
    needs("cargo")
    asked = await anyio.run_process(["cargo", "--version"])
    version = asked.stdout.decode().split()[1]
    if tuple(map(int, version.split(".")[:2])) < (1, 70):
        pytest.skip(f"cargo {version} asks for the git index, the sparse one is the default since 1.70")
    data = packed(
        {
            "fenced-1.0.0/Cargo.toml": '[package]\nname="fenced"\nversion="1.0.0"\n',
            "fenced-1.0.0/src/lib.rs": "",
        }
    )
    put(web, "crates/fenced/1.0.0/download", data)
    put(web, "config.json", json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"}))
    line = {
        "name": "fenced", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
        "cksum": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    put(web, "fe/nc/fenced", json.dumps(line) + "\n")
    async with gated("packages", env={"CARGO_HOME": "/tmp/cargo"}) as sandbox:
        await sandbox.write_file(
            "Cargo.toml", b'[package]\nname="x"\nversion="1.0.0"\n[dependencies]\nfenced="1"\n'
        )
        await sandbox.write_file("src/lib.rs", b"")
        said = await sh(sandbox, "cargo fetch && ls /tmp/cargo/registry/cache/*")
    assert "fenced-1.0.0.crate" in said, said
