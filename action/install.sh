#!/usr/bin/env bash
# Installs one version of ringfence in a virtual environment of its own, outside of the workspace.
set -euo pipefail

if ! [[ "$INPUT_VERSION" =~ ^[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)?$ ]]; then
    echo "the input 'version' is no version of ringfence; give one such as 0.2.0" >&2
    exit 2
fi
# Modules in the current directory would be imported, and the workspace holds the files of the pull request.
cd "$RUNNER_TEMP"
python3 -I -m venv --clear "$RUNNER_TEMP/ringfence"
"$RUNNER_TEMP/ringfence/bin/python" -I -m pip --isolated --disable-pip-version-check install --quiet "ringfence[attest]==$INPUT_VERSION"
