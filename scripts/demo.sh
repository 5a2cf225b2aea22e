#!/bin/sh
# The main job on a copy of examples/red-suite: an agent repairs it in a sandbox, and the outcome is checked.
#
# All of it stays in one new temporary directory: the copy, the records, the configuration. It is kept to look at.
set -eu
cd "$(dirname "$0")/.."

here=$PWD
ringfence="${DEMO_RINGFENCE:-$here/.venv/bin/ringfence}"
check="python3 -m unittest -q"

. scripts/saying.sh

# SANDBOX=docker|podman|gvisor: in a container of the image IMAGE, or of the one that `ringfence image build` made.
sandbox=${SANDBOX:-}
image=${IMAGE:-}
case $sandbox in
    docker | podman | gvisor)
        if [ -z "$image" ]; then
            [ "$sandbox" != podman ] || set -- --podman
            described=$("$ringfence" image show base --json "$@") # in two steps: of a pipe, only the last end counts
            image=$(printf '%s' "$described" | python3 -c 'import json, sys; print(json.load(sys.stdin)["name"])')
            set --
        fi
        ;;
esac

demo=$(mktemp -d "${TMPDIR:-/tmp}/ringfence-demo.XXXXXX")
project="$demo/red-suite"
export RINGFENCE_STATE_DIR="$demo/state" XDG_CONFIG_HOME="$demo/config"

say "A small project whose tests fail, copied to $project"
cp -R examples/red-suite "$project"
find "$project" -name __pycache__ -prune -exec rm -rf {} +
git -C "$project" init --quiet
git -C "$project" add .
git -C "$project" -c user.name=demo -c user.email=demo@example.invalid commit --quiet --message "Start"
(cd "$project" && PYTHONDONTWRITEBYTECODE=1 $check 2>&1 | tail -n 1) || true

if [ -n "${ANTHROPIC_API_KEY:-}${ANTHROPIC_AUTH_TOKEN:-}${CLAUDE_CODE_OAUTH_TOKEN:-}" ]; then
    say "A key is set: the agent is the real model, and its tokens cost money (at most 1 USD)"
    set -- --max-cost-usd 1
else
    say "No key is set: the agent follows examples/red-suite.script.yaml; everything else is real"
    set -- --model "scripted:$here/examples/red-suite.script.yaml"
fi

[ -z "$sandbox" ] || set -- --sandbox "$sandbox" "$@"
[ -z "$image" ] || set -- --image "$image" "$@"

say "The agent works in a sandbox; then its work is checked in a new one"
show run "Fix the failing tests" --workspace "$project" --verify "$check" --require-verified "$@"

say "What it changed"
cd "$project" # 'last' is the newest run on the workspace one is in
show diff last

say "The record is complete and unchanged"
show runs verify last

if diff -r --exclude=.git --exclude=__pycache__ "$here/examples/red-suite" "$project" >/dev/null; then
    say "It worked on a private copy (a sandbox never runs as root); now its work is put into the project"
    show apply last
fi

say "The project's own tests, outside of the sandbox"
(cd "$project" && PYTHONDONTWRITEBYTECODE=1 $check)

say "Done: verified. Everything is in $demo; remove it with: rm -r $demo"
cat <<HINTS
The demo keeps its records apart from yours. To use the commands that it named, such as \`ringfence diff last\`, type first:
  cd $project
  export RINGFENCE_STATE_DIR=$RINGFENCE_STATE_DIR XDG_CONFIG_HOME=$XDG_CONFIG_HOME PATH="$(dirname "$ringfence"):\$PATH"
HINTS
