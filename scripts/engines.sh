#!/usr/bin/env bash
# The container engines that the tests marked `docker` need: Docker with gVisor's runsc, and a Podman socket.
#
#   scripts/engines.sh          install what is missing (as root, by apt), start what is not running, wait, print
#   scripts/engines.sh status   print what answers; exits 1 unless all do
#   scripts/engines.sh stop     end what this script started, and nothing else
#
# As an ordinary user: installs nothing, starts a rootless Podman socket, and uses Docker if its socket lets it.
set -euo pipefail

readonly packages=(
    docker.io podman runsc          # the engines
    docker-registry                 # whose images tests fetch
    mmdebstrap debootstrap          # images where no registry can be reached
    uidmap slirp4netns fuse-overlayfs containernetworking-plugins # what a rootless engine needs
    curl python3                    # how this script asks them
)
readonly programs=(dockerd podman runsc docker-registry mmdebstrap debootstrap newuidmap slirp4netns fuse-overlayfs curl python3)
readonly patience_s=60
# gVisor of Debian 13, apart: the guest cannot protect itself in that of Debian 12, which is kept to see it refused.
# Not that of Debian sid, which does not start (7+b1: "running on goroutine ...").
readonly runsc_version=0.0~20240729.0-4+b7 runsc_release=trixie
readonly runsc_dir=/usr/local/lib/ringfence-engines/runsc-$runsc_version
readonly runsc=$runsc_dir/usr/bin/runsc
PATH=$PATH:/usr/sbin:/sbin # dockerd, where PATH is a user's

if ((EUID == 0)); then
    readonly run_dir=/run/ringfence-engines
    readonly podman_socket=/run/podman/podman.sock
else
    readonly runtime_dir=${XDG_RUNTIME_DIR:-/tmp/ringfence-engines-$EUID}
    readonly run_dir=$runtime_dir/ringfence-engines
    readonly podman_socket=$runtime_dir/podman/podman.sock
fi
readonly docker_socket=/run/docker.sock

missing_programs() {
    local program
    for program in "${programs[@]}"; do
        command -v "$program" >/dev/null || echo "$program"
    done
}

install_missing() {
    local missing
    missing=$(missing_programs | paste -s -d ' ')
    [[ -z $missing ]] && return
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "missing: $missing; as root on Debian: apt-get install ${packages[*]}" >&2
        return
    fi
    echo "installing ${packages[*]} (missing: $missing)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${packages[@]}" >/dev/null
}

# By apt with lists of its own, so that the machine's packages stay those of its release.
install_runsc() {
    [[ -x $runsc ]] && return
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "missing: $runsc; as root on Debian: $0" >&2
        return
    fi
    local lists mirror source options
    lists=$(mktemp -d)
    chmod 755 "$lists"
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -n 1) # the machine's own
    source="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $runsc_release main"
    echo "$source" >"$lists/sources.list"
    options=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User=root)
    echo "installing runsc $runsc_version of Debian $runsc_release in $runsc_dir"
    apt-get "${options[@]}" update -qq
    (cd "$lists" && apt-get "${options[@]}" download -qq "runsc=$runsc_version")
    mkdir -p "$(dirname "$runsc_dir")"
    rm -rf "$runsc_dir.new"
    dpkg -x "$lists"/runsc_*.deb "$runsc_dir.new"
    mv "$runsc_dir.new" "$runsc_dir"
    rm -rf "$lists"
}

# ask SOCKET PATH: the answer of an engine's API, or nothing.
ask() {
    [[ -S $1 ]] && curl --silent --fail --max-time 10 --unix-socket "$1" "http://localhost/$2" 2>/dev/null
}

# start_engine NAME SOCKET COMMAND...: in a session of its own, so that it outlives this shell.
start_engine() {
    local name=$1 socket=$2
    shift 2
    if ask "$socket" _ping >/dev/null; then
        return
    fi
    mkdir -p "$run_dir" "$(dirname "$socket")"
    rm -f "$socket" # nobody answers on it
    # In a directory of its own: Podman's monitor leaves a file `oom` where the service was started.
    (cd "$run_dir" && exec setsid nohup "$@") >"$run_dir/$name.log" 2>&1 </dev/null &
    local pid=$!
    echo "$pid" >"$run_dir/$name.pid"
    local deadline=$((SECONDS + patience_s))
    until ask "$socket" _ping >/dev/null; do
        if ((SECONDS >= deadline)) || ! kill -0 "$pid" 2>/dev/null; then
            echo "$name does not answer on $socket; the last of $run_dir/$name.log:" >&2
            tail -n 5 "$run_dir/$name.log" >&2
            return 1
        fi
        sleep 0.2
    done
}

# ptrace needs no virtual machine. No network but loopback: Debian 12's runsc takes every
# network namespace of a newer kernel for the host's own and refuses to start.
write_docker_settings() {
    mkdir -p "$run_dir"
    cat >"$run_dir/daemon.json" <<SETTINGS
{
  "runtimes": {
    "runsc": {"path": "$runsc", "runtimeArgs": ["--platform=ptrace", "--network=none"]},
    "runsc-debian12": {"path": "$(command -v runsc)", "runtimeArgs": ["--platform=ptrace", "--network=none"]}
  }
}
SETTINGS
}

start_docker() {
    ((EUID == 0)) || return 0
    command -v dockerd >/dev/null || return 1
    local before pid
    before=$(cat "$run_dir/daemon.json" 2>/dev/null || true)
    write_docker_settings
    # One that this script started takes other runtimes while it runs.
    pid=$(cat "$run_dir/dockerd.pid" 2>/dev/null || true)
    if [[ -n $pid && $before != "$(<"$run_dir/daemon.json")" && $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]]; then
        kill -HUP "$pid"
    fi
    # After a power cut its number may be another program's, and dockerd would believe that one to be itself.
    if [[ -e /run/docker.pid && $(cat "/proc/$(</run/docker.pid)/comm" 2>/dev/null) != dockerd ]]; then
        rm -f /run/docker.pid
    fi
    start_engine dockerd "$docker_socket" dockerd --host "unix://$docker_socket" --config-file "$run_dir/daemon.json"
}

# Podman's defaults ask for more than many machines give: crun refuses cgroups v1 and v2 side by side, systemd may
# not be there to make cgroups, and raising limits needs CAP_SYS_RESOURCE (Podman lowers its own to pid_max first).
write_podman_settings() {
    mkdir -p "$run_dir"
    local runtime=crun
    if [[ -d /sys/fs/cgroup/memory ]]; then
        runtime=runc
    fi
    local files processes most_processes
    files=$(ulimit -Hn) processes=$(ulimit -Hu) most_processes=$(</proc/sys/kernel/pid_max)
    [[ $files == unlimited ]] && files=1048576
    [[ $processes == unlimited ]] || ((processes > most_processes)) && processes=$most_processes
    cat >"$run_dir/containers.conf" <<SETTINGS
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[engine]
runtime = "$runtime"
cgroup_manager = "cgroupfs"
events_logger = "file"
SETTINGS
}

start_podman() {
    command -v podman >/dev/null || return 1
    write_podman_settings
    start_engine podman "$podman_socket" env CONTAINERS_CONF="$run_dir/containers.conf" STORAGE_DRIVER=overlay \
        podman system service --time=0 "unix://$podman_socket"
}

# field JSON NAME: a text field of an engine's answer.
field() {
    python3 -c 'import json, sys; print(json.loads(sys.argv[1]).get(sys.argv[2], "?"))' "$1" "$2"
}

print_engine() {
    local name=$1 socket=$2 version info
    if ! version=$(ask "$socket" version) || ! info=$(ask "$socket" info); then
        printf '%-7s does not answer on %s\n' "$name" "$socket"
        return 1
    fi
    printf '%-7s %s on %s, cgroup v%s, storage %s, runtimes %s\n' "$name" "$(field "$version" Version)" "$socket" \
        "$(field "$info" CgroupVersion)" "$(field "$info" Driver)" \
        "$(python3 -c 'import json, sys; print(*sorted(json.loads(sys.argv[1]).get("Runtimes") or ["?"]))' "$info")"
}

status() {
    local all=0
    print_engine docker "$docker_socket" || all=1
    print_engine podman "$podman_socket" || all=1
    if [[ -x $runsc ]]; then
        printf 'runsc   %s\n' "$("$runsc" --version | awk 'NR == 1 { print $NF }')"
    else
        echo "runsc   is not installed"
        all=1
    fi
    return "$all"
}

stop() {
    local file pid
    for file in "$run_dir"/*.pid; do
        [[ -e $file ]] || continue
        pid=$(<"$file")
        if [[ $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) == *"$(basename "$file" .pid)"* ]]; then
            kill "$pid" 2>/dev/null || true
            local deadline=$((SECONDS + patience_s))
            while kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)); do sleep 0.1; done
            echo "stopped $(basename "$file" .pid)"
        fi
        rm -f "$file"
    done
}

case ${1:-start} in
    start)
        install_missing
        install_runsc
        started=0
        start_docker || started=1
        start_podman || started=1
        status || started=1
        exit "$started"
        ;;
    status) status ;;
    stop) stop ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
