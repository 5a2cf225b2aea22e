#!/bin/sh
# The operator's lab: a small shop with Redis in containers, a fault, an agent that finds and repairs it from inside a
# fence, and a check that decides the outcome.
#
#   examples/operator/run.sh                        the agent follows repairs.script.yaml; everything else is real
#   AGENT=only-says-so examples/operator/run.sh     an agent that only claims a repair: the check is red, exit code 3
#   SANDBOX=docker IMAGE=NAME:TAG examples/operator/run.sh     the agent in a container of that image, instead of bubblewrap
#
# What the lab makes in the engine carries one label and is removed at the end.
set -eu
cd "$(dirname "$0")"

ringfence="${OPERATOR_RINGFENCE:-$PWD/../../.venv/bin/ringfence}"
lab_image=ringfence-lab-operator:1
place=$(mktemp -d "${TMPDIR:-/tmp}/ringfence-operator.XXXXXX")
name=$(basename "$place" | tr '[:upper:].' '[:lower:]-')
export RINGFENCE_STATE_DIR="$place/state" XDG_CONFIG_HOME="$place/config"

say() { printf '\n# %s\n' "$*"; }

docker version --format '{{.Server.Version}}' >/dev/null || {
    echo "examples/operator needs Docker's command and an engine that answers" >&2
    exit 125
}

clean_up() {
    docker ps --all --quiet --filter "label=ringfence-lab=$name" | xargs -r docker rm --force >/dev/null
    docker network ls --quiet --filter "label=ringfence-lab=$name" | xargs -r docker network rm >/dev/null
}
trap clean_up EXIT
trap 'exit 130' INT TERM

if ! docker image inspect "$lab_image" >/dev/null 2>&1; then
    say "The lab's image is made once: $lab_image"
    if command -v mmdebstrap >/dev/null; then # no registry needed: from the distribution's own packages
        mmdebstrap --quiet --variant=minbase --include=python3,python3-redis,redis-server bookworm - |
            docker import --change 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' - "$lab_image" >/dev/null
    else
        docker build --quiet --tag "$lab_image" service >/dev/null
    fi
fi

say "A shop and its Redis, in containers; a third container is none of the agent's business"
docker network create --label "ringfence-lab=$name" "$name" >/dev/null
start() {
    service=$1
    shift
    docker run --detach --label "ringfence-lab=$name" --name "$name-$service" --network "$name" --network-alias "$service" \
        --read-only --tmpfs /tmp --workdir /tmp --cap-drop ALL --security-opt no-new-privileges --user 1000:1000 \
        --memory 128m --pids-limit 50 --stop-timeout 5 "$@" >/dev/null
}
start redis --label "operator=$name" --publish 127.0.0.1::6379 "$lab_image" redis-server --save "" --protected-mode no
start shop --label "operator=$name" --publish 127.0.0.1::8080 --env REDIS_HOST=redis \
    "$lab_image" python3 -uc "$(cat service/shop.py)"
start billing "$lab_image" sleep 3600
port() { docker port "$name-$1" "$2/tcp" | sed -n 's/^127.0.0.1://p'; }
shop="http://127.0.0.1:$(port shop 8080)"
order() { python3 -c "
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1] + '/orders', b'{}', timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print(0)" "$shop"; }
tries=0
until [ "$(order)" = 201 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || { echo "the shop did not come up" >&2; docker logs "$name-shop" >&2; exit 75; }
    sleep 0.5
done
docker ps --filter "label=ringfence-lab=$name" --format '{{.Names}}  {{.Status}}'
started() { docker inspect --format '{{.State.StartedAt}}' "$name-$1"; }
redis_started=$(started redis) billing_started=$(started billing)

say "The fault: somebody gives Redis less memory than it has in use; the shop now answers orders with:"
docker exec "$name-redis" redis-cli config set maxmemory 100kb >/dev/null
order

say "What the agent may do: two ports, and looking at and restarting containers with the label operator=$name"
cp -R workspace "$place/workspace"
mkdir -p "$place/config/ringfence"
cat >"$place/config/ringfence/ringfence.yaml" <<END
sandbox:
  backend: ${SANDBOX:-bubblewrap}
  ${IMAGE:+image: $IMAGE}
  forward:
    - shop:8080=127.0.0.1:$(port shop 8080)
    - redis:6379=127.0.0.1:$(port redis 6379)
  protect: [check.py]
engine:
  label: operator=$name
  allow: [restart]
run:
  toolset: operator
END
cd "$place/workspace"
"$ringfence" config policy show | grep -E -A2 '^(forward|engine):'

say "The agent works in a sandbox; then the check decides, in a new one"
code=0
"$ringfence" run --file "$OLDPWD/task.md" --model "scripted:$OLDPWD/${AGENT:-repairs}.script.yaml" \
    --verify "python3 check.py" --require-verified || code=$?

say "The record: what was asked of the engine, other than pings"
sed -n 's/.*"event":"engine.called","data":{\(.*\)}}$/\1/p' "$RINGFENCE_STATE_DIR"/runs/*/journal.jsonl |
    grep -v '"action":"ping"' |
    sed 's/.*"method":"\([A-Z]*\)","path":"\([^"?]*\)[^"]*","allowed":\([a-z]*\).*/\3  \1 \2/; s/^true /forwarded/; s/^false/refused  /' |
    sort | uniq -c
"$ringfence" runs verify last

say "From outside: an order is answered with $(order)"
[ "$(started billing)" = "$billing_started" ] || { echo "the billing container was touched" >&2; exit 1; }
if [ "$code" -eq 0 ]; then
    [ "$(started redis)" != "$redis_started" ] || { echo "Redis was not started again" >&2; exit 1; }
    [ "$(order)" = 201 ] || { echo "orders fail" >&2; exit 1; }
    echo "repaired, and verified"
else
    echo "not repaired: exit code $code"
fi
echo "The record is in $place; remove it with: rm -r $place"
exit "$code"
