#!/usr/bin/env bash
# The agents' own command line programs that tests/real_clients runs: claude and codex, from npm.
#
#   scripts/clients.sh [DIRECTORY]            install what is missing, print the directory; TEST_CLIENTS names it to the tests
#   scripts/clients.sh --latest [DIRECTORY]   the newest ones instead of the pinned ones
#   scripts/clients.sh --oldest [DIRECTORY]   the oldest ones that docs/reference/runtimes.md names
#
# The versions are those of the image `agents`, pinned with their hashes by its package-lock.json. Nothing of them is
# run while they are installed. As root, npm itself is installed by apt if it is missing.
set -euo pipefail

versions=pinned
if [[ ${1:-} == --latest || ${1:-} == --oldest ]]; then
    versions=${1#--}
    shift
fi
readonly versions
suffix=
[[ $versions == pinned ]] || suffix=-$versions
readonly suffix

# What is below root's home is never shown in a sandbox.
default=${XDG_CACHE_HOME:-$HOME/.cache}/ringfence-test-clients$suffix
((EUID == 0)) && default=/opt/ringfence-test-clients$suffix
readonly directory=${1:-$default}
pinned=$(cd "$(dirname "$0")/../src/ringfence/sandbox/docker/image/context/agents" && pwd)
readonly pinned

if ! command -v npm >/dev/null; then
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "npm is missing; as root: apt-get install npm" >&2
        exit 1
    fi
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends npm; } >&2
fi

readonly install=(npm --prefix "$directory" --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)
# version_of RUNTIME: the version to install.
version_of() {
    if [[ $versions == latest ]]; then
        echo latest
    else
        "$(dirname "$0")/../.venv/bin/python" -c \
            "from ringfence.runtime.registry import agent_cli_of; print(agent_cli_of('$1').tested[0])"
    fi
}

if [[ $versions != pinned ]]; then
    claude=$(version_of claude-cli) codex=$(version_of codex-cli)
    mkdir -p "$directory"
    "${install[@]}" install "@anthropic-ai/claude-code@$claude" "@openai/codex@$codex" >&2
    echo "$directory"
    exit
fi

# The lock file is copied last: where it is the same, all is there.
if ! cmp --silent "$pinned/package-lock.json" "$directory/installed.json"; then
    mkdir -p "$directory"
    cp "$pinned/package.json" "$pinned/package-lock.json" "$directory/"
    "${install[@]}" ci >&2
    cp "$pinned/package-lock.json" "$directory/installed.json"
fi
echo "$directory"
