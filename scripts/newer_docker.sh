#!/usr/bin/env bash
# A second Docker engine with compose, apart from the machine's: inspect_ai's provider needs 24.0.6, and Debian 12 has
# 20.10. For `benchmarks/harnesses.py` alone. As root, on Debian.
#
#   scripts/newer_docker.sh start   fetch it where it is missing, start it, print its directory
#   scripts/newer_docker.sh stop    end it
set -euo pipefail

readonly release=trixie
readonly packages=(docker.io docker-cli docker-compose)
readonly directory=/usr/local/lib/ringfence-engines/docker-$release
readonly run_dir=/run/ringfence-engines/docker-$release
readonly patience_s=30

# By apt with lists of its own, so that the machine's packages stay those of its release.
fetch() {
    [[ -x $directory/usr/sbin/dockerd ]] && return
    local lists mirror options
    lists=$(mktemp -d)
    chmod 755 "$lists"
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $release main" >"$lists/sources.list"
    options=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq
    (cd "$lists" && apt-get "${options[@]}" download -qq "${packages[@]}")
    rm -rf "$directory.new"
    for package in "$lists"/*.deb; do dpkg -x "$package" "$directory.new"; done
    mkdir -p "$directory.new/config/cli-plugins"
    ln -s "$directory/usr/libexec/docker/cli-plugins/docker-compose" "$directory.new/config/cli-plugins/"
    mv "$directory.new" "$directory"
    rm -rf "$lists"
}

# In a network of its own: at its start an engine removes or changes the bridge and the firewall's rules of another one.
start() {
    mkdir -p "$run_dir"
    if ! kill -0 "$(cat "$run_dir/pid" 2>/dev/null)" 2>/dev/null; then
        PATH=$PATH:/usr/sbin:/sbin setsid nohup unshare --net "$directory/usr/sbin/dockerd" --host "unix://$run_dir/docker.sock" \
            --data-root "$run_dir/data" --exec-root "$run_dir/exec" --pidfile "$run_dir/pid" --bridge none \
            --iptables=false --ip6tables=false --config-file /dev/null >"$run_dir/log" 2>&1 </dev/null &
    fi
    local deadline=$((SECONDS + patience_s))
    until curl --silent --fail --unix-socket "$run_dir/docker.sock" http://localhost/_ping >/dev/null; do
        ((SECONDS < deadline)) || {
            tail -n 5 "$run_dir/log" >&2
            return 1
        }
        sleep 0.2
    done
    echo "$directory"
}

stop() {
    local pid
    pid=$(cat "$run_dir/pid" 2>/dev/null) || return 0
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

case ${1:-} in
    start) fetch && start ;;
    stop) stop ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
