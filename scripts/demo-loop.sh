#!/bin/sh
# A loop over the five stories of examples/loop: tests first, then code, each judged; what passes is on a branch.
#
# All of it stays in one new temporary directory: the copy, the records, the configuration. It is kept to look at.
set -eu
cd "$(dirname "$0")/.."

here=$PWD
ringfence="${DEMO_RINGFENCE:-$here/.venv/bin/ringfence}"
. scripts/saying.sh

demo=$(mktemp -d "${TMPDIR:-/tmp}/ringfence-demo.XXXXXX")
project="$demo/kitty"
export RINGFENCE_STATE_DIR="$demo/state" XDG_CONFIG_HOME="$demo/config" XDG_CACHE_HOME="$demo/cache"

say "A small project and five stories to implement, copied to $project"
cp -R examples/loop "$project"
find "$project" -name __pycache__ -prune -exec rm -rf {} +
git -C "$project" init --quiet --initial-branch main
git -C "$project" add .
git -C "$project" -c user.name=demo -c user.email=demo@example.invalid commit --quiet --message "Start"
cd "$project"
suite() { PYTHONDONTWRITEBYTECODE=1 python3 -m unittest -q; }
suite

if [ -n "${ANTHROPIC_API_KEY:-}${ANTHROPIC_AUTH_TOKEN:-}${CLAUDE_CODE_OAUTH_TOKEN:-}" ]; then
    say "A key is set: all roles are the real model, and its tokens cost money (at most 5 USD)"
    set -- --max-cost-usd 5
    ends="0 3"
else
    say "No key is set: all roles follow examples/loop.script.yaml; everything else is real"
    set -- --model "scripted:$here/examples/loop.script.yaml"
    ends=3 # by the script one story is skipped
fi

show loop check prd.json "$@"

say "A role at a time in a sandbox of its own; a story has two attempts"
code=0
show loop start --prd prd.json --attempts 2 "$@" || code=$?
case " $ends " in *" $code "*) echo "exit code $code" ;; *) echo "exit code $code, not $ends" >&2; exit 1 ;; esac

say "The report; all of it is in $demo/report.html"
show loop show | sed '/^## Story/,$d'
"$ringfence" loop show --html "$demo/report.html"

branch=$(git for-each-ref --format='%(refname:short)' refs/heads/ringfence/)
say "The branch it left in the project; what is checked out is as it was"
git log --oneline --reverse "main..$branch"
git status --short --branch

say "The branch's own tests, outside of the sandbox"
git checkout --quiet "$branch"
suite
python3 -B -m kitty settle holiday.csv

say "Done. Everything is in $demo; remove it with: rm -r $demo"
