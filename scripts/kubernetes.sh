#!/usr/bin/env bash
# A Kubernetes 1.20.2 for tests, of Debian's packages: the programs are built from the source package of Debian 12, which is
# the last whose source holds the servers.
#
#   scripts/kubernetes.sh install [node]   as root: packages and programs; of the servers only the API server, with `node` all
#   scripts/kubernetes.sh missing [node]   print what is not installed; exits 1 if something is not
#   scripts/kubernetes.sh up [node]        etcd and the API server; with `node` also a single node, in a network of its own
#   scripts/kubernetes.sh image NAME...    give the node images of the local Docker engine
#   scripts/kubernetes.sh status           print what runs; exits 1 if the API server does not
#   scripts/kubernetes.sh down             end everything that `up` has started, and put back what it has set
#
# Its state is in KUBERNETES_STATE (default: /tmp/ringfence-kubernetes); the administrator's kubeconfig is `kubeconfig` there.
# `up` alone works as an ordinary user, and several may run at once in different directories. A node needs root. It has a
# network and mounts of its own, and a cgroup. It enforces NetworkPolicies that deny everything, except in namespaces named
# `open-...`, as where a plugin ignores policies. Its kubelet sets sysctls of the machine, which `down` puts back. A second
# node runs beside it with another number in KUBERNETES_NODE (1 to 9), which its other commands read in its directory.
set -euo pipefail

readonly version=1.20.5+really1.20.2-1.1+deb12u1
readonly programs_dir=${KUBERNETES_PROGRAMS:-/usr/local/lib/ringfence-kubernetes/1.20.2}
readonly state=${KUBERNETES_STATE:-/tmp/ringfence-kubernetes}
export HOME=$state # where kubectl keeps a cache; of nobody else
number=${KUBERNETES_NODE:-$(cat "$state/number" 2>/dev/null || true)}
readonly number namespace_name=ringfence-node$number node_name=ringfence-node service_address=10.96.0.1
readonly host_address=10.$((97 + 2 * number)).0.1 node_address=10.$((97 + 2 * number)).0.2 pod_network=10.$((98 + 2 * number)).0.0/16
readonly sysctls=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)
readonly sysctls_dir=/run/ringfence-kubernetes
readonly patience_s=90
here=$(dirname "$(realpath "$0")")
readonly here
PATH=$PATH:/usr/sbin:/sbin

# --- installing

commands() { # those of Debian, with their packages
    printf '%s\n' etcd:etcd-server kubectl:kubernetes-client openssl:openssl python3:python3
    [[ ${1:-} != node ]] || printf '%s\n' containerd:containerd runc:runc iptables:iptables ip:iproute2 docker:docker.io \
        /usr/lib/cni/ptp:containernetworking-plugins
}

programs() { # those that are built
    printf '%s\n' kube-apiserver
    [[ ${1:-} != node ]] || printf '%s\n' kube-controller-manager kube-scheduler kubelet pause
}

missing() {
    local one all=0
    for one in $(commands "${1:-}" | cut -d : -f 1) $(programs "${1:-}" | sed "s|^|$programs_dir/|"); do
        command -v "$one" >/dev/null || { echo "$one" && all=1; }
    done
    return "$all"
}

install() {
    install_commands $(commands "${1:-}")
    mkdir -p "$programs_dir"
    exec 9>"$programs_dir.lock"
    flock 9 # one build at a time
    build_programs $(programs "${1:-}")
}

install_commands() {
    local one packages=()
    for one in "$@"; do
        command -v "${one%:*}" >/dev/null || packages+=("${one#*:}")
    done
    ((${#packages[@]} == 0)) && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${packages[@]}" >/dev/null
}

build_programs() {
    local program missing=()
    for program in "$@"; do
        [[ -x $programs_dir/$program ]] || missing+=("$program")
    done
    ((${#missing[@]} == 0)) && return
    install_commands go:golang-go dpkg-source:dpkg-dev
    build_dir=$(mktemp -d)
    trap 'chmod -R u+w "$build_dir"; rm -rf "$build_dir"' EXIT
    export GOPATH=$build_dir/go GOCACHE=$build_dir/cache GOTMPDIR=$build_dir GO111MODULE=off CGO_ENABLED=0
    mkdir -p "$GOPATH/src/k8s.io"
    fetch_source "$build_dir"
    ln -s "$build_dir/source" "$GOPATH/src/k8s.io/kubernetes"
    cd "$GOPATH/src/k8s.io/kubernetes"
    generate_openapi "$build_dir"
    for program in "${missing[@]}"; do
        local begun=$SECONDS
        build_program "$program" "$build_dir/$program"
        mv "$build_dir/$program" "$programs_dir/$program"
        echo "built $program in $((SECONDS - begun)) s"
    done
}

# Without the drivers of clouds and of Docker, which no test needs, it takes half the time.
build_program() {
    if [[ $1 == pause ]]; then
        write_pause >"$build_dir/pause.go"
        go build -ldflags '-s -w' -o "$2" "$build_dir/pause.go"
        return
    fi
    local package flags='-s -w'
    for package in component-base/version client-go/pkg/version; do # the second is what the API server reports
        package=k8s.io/kubernetes/vendor/k8s.io/$package
        flags+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitCommit= -X $package.gitTreeState="
    done
    nice -n 10 go build -p 2 -tags providerless,dockerless -ldflags "$flags" -o "$2" "./cmd/$1"
}

# The process that holds a pod's namespaces.
write_pause() {
    cat <<'PROGRAM'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
PROGRAM
}

# By apt with lists of its own, so that the machine's sources stay as they are.
fetch_source() {
    local build=$1 mirror options
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -n 1)
    mkdir -p "$build/lists/partial" "$build/apt"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} bookworm main" \
        >"$build/sources.list"
    options=(-o "Dir::Etc::sourcelist=$build/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$build/lists" -o "Dir::Cache=$build/apt" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq
    (cd "$build" && apt-get "${options[@]}" source --download-only -qq "kubernetes=$version")
    dpkg-source --no-check -x "$build"/kubernetes_*.dsc "$build/source" >/dev/null
}

# The one generated file that the source package leaves out.
generate_openapi() {
    local directories
    nice -n 10 go build -p 2 -o "$1/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    directories=$(grep -Rl '+k8s:openapi-gen=' --include='*.go' vendor/k8s.io pkg | xargs -n 1 dirname | sort -u |
        grep -v -e code-generator -e sample-apiserver -e _test -e /testdata | sed 's|^|k8s.io/kubernetes/|' | paste -s -d ,)
    nice -n 10 "$1/openapi-gen" -i "$directories" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$1/violations"
}

# --- starting

# start NAME COMMAND...: in a session of its own, with its log and its process number in the state directory.
start() {
    local name=$1
    shift
    (cd "$state" && exec setsid nohup "$@") >"$state/$name.log" 2>&1 </dev/null &
    echo "$!" >"$state/$name.pid"
}

# await NAME COMMAND...: wait until the command succeeds, as long as the named process lives.
await() {
    local name=$1 deadline=$((SECONDS + patience_s))
    shift
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= deadline)) || ! kill -0 "$(<"$state/$name.pid")" 2>/dev/null; then
            echo "$name does not come up; the last of $state/$name.log:" >&2
            tail -n 5 "$state/$name.log" >&2
            return 1
        fi
        sleep 0.1
    done
}

free_ports() { # three of them
    python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in held))'
}

certificate() { # certificate NAME SUBJECT [ALTERNATIVE NAMES]
    local name=$1 subject=$2 names=${3:-}
    openssl req -newkey rsa:2048 -nodes -keyout "$state/$name.key" -out "$state/$name.csr" -subj "$subject" 2>/dev/null
    openssl x509 -req -in "$state/$name.csr" -CA "$state/ca.crt" -CAkey "$state/ca.key" -CAcreateserial -days 30 \
        -out "$state/$name.crt" -extfile <(printf 'extendedKeyUsage=clientAuth,serverAuth\n%s' "${names:+subjectAltName=$names}") 2>/dev/null
}

kubeconfig() { # kubeconfig FILE SERVER NAME: with the certificate of that name
    cat >"$1" <<CONFIG
{"apiVersion": "v1", "kind": "Config", "current-context": "test",
 "clusters": [{"name": "test", "cluster": {"server": "$2", "certificate-authority": "$state/ca.crt"}}],
 "users": [{"name": "$3", "user": {"client-certificate": "$state/$3.crt", "client-key": "$state/$3.key"}}],
 "contexts": [{"name": "test", "context": {"cluster": "test", "user": "$3"}}]}
CONFIG
}

make_certificates() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$state/ca.key" -out "$state/ca.crt" -days 30 -subj /CN=test-ca 2>/dev/null
    certificate server /CN=kube-apiserver "IP:127.0.0.1,IP:$host_address,IP:$service_address,DNS:localhost,DNS:kubernetes.default"
    certificate admin /O=system:masters/CN=admin
    certificate node "/O=system:nodes/CN=system:node:$node_name" "IP:$node_address,DNS:$node_name"
    openssl genrsa -out "$state/accounts.key" 2048 2>/dev/null
}

# refuse_second NODE: end with an error where `up` has been before; what still runs is to be ended by `down`.
refuse_second() {
    local absent
    if [[ -e $state/etcd.pid ]]; then
        echo "$state is in use: \`$0 status\` shows what runs, \`$0 down\` ends it" >&2
        exit 1
    fi
    if ! absent=$(missing "${1:-}"); then
        echo "missing: $(paste -s -d ' ' <<<"$absent"); as root on Debian 12: $0 install ${1:-}" >&2
        exit 1
    fi
    mkdir -p "$state"
    chmod 700 "$state" # keys of an administrator
}

up_control_plane() {
    local ports address=${1:-127.0.0.1}
    read -ra ports < <(free_ports)
    [[ -e $state/ca.crt ]] || make_certificates
    start etcd etcd --data-dir "$state/etcd" --unsafe-no-fsync --listen-client-urls "http://127.0.0.1:${ports[0]}" \
        --advertise-client-urls "http://127.0.0.1:${ports[0]}" --listen-peer-urls "http://127.0.0.1:${ports[1]}"
    local server=https://$address:${ports[2]}
    start_api_server "${ports[0]}" "${ports[2]}" "$address"
    kubeconfig "$state/kubeconfig" "$server" admin
    await kube-apiserver kubectl --kubeconfig "$state/kubeconfig" get --raw /readyz
    until kubectl --kubeconfig "$state/kubeconfig" get namespace default >/dev/null 2>&1; do sleep 0.1; done
    echo "the API server is ready; export KUBECONFIG=$state/kubeconfig"
}

start_api_server() { # start_api_server ETCD_PORT PORT ADDRESS; kept in a file, for `restart-api`
    printf '%s %s %s\n' "$@" >"$state/ports"
    start kube-apiserver "$programs_dir/kube-apiserver" --etcd-servers "http://127.0.0.1:$1" \
        --bind-address "$3" --advertise-address "$([[ $3 == 127.0.0.1 ]] && echo 192.0.2.1 || echo "$3")" --secure-port "$2" \
        --service-cluster-ip-range 10.96.0.0/16 --authorization-mode Node,RBAC --allow-privileged \
        --client-ca-file "$state/ca.crt" --tls-cert-file "$state/server.crt" --tls-private-key-file "$state/server.key" \
        --kubelet-client-certificate "$state/admin.crt" --kubelet-client-key "$state/admin.key" \
        --kubelet-certificate-authority "$state/ca.crt" --kubelet-preferred-address-types InternalIP \
        --service-account-key-file "$state/accounts.key" --service-account-signing-key-file "$state/accounts.key" \
        --service-account-issuer https://kubernetes.default \
        --disable-admission-plugins "$([[ $3 == 127.0.0.1 ]] && echo ServiceAccount || echo StorageObjectInUseProtection)" \
        --endpoint-reconciler-type none
}

# --- a node

in_node() { nsenter --net="/run/netns/$namespace_name" "$@"; }

up_node() {
    if ((EUID != 0)); then
        echo "a node needs root" >&2
        exit 1
    fi
    if [[ $state == /run/* || $state == /var/* ]]; then
        echo "$state: the node sees directories of its own in /run and /var; choose another KUBERNETES_STATE" >&2
        exit 1
    fi
    refuse_second node
    if [[ -e /run/netns/$namespace_name ]]; then
        echo "another node runs, or was not ended by \`$0 down\`; start this one with another number: KUBERNETES_NODE=1 to 9" >&2
        exit 1
    fi
    echo "$number" >"$state/number"
    record_sysctls
    make_network
    up_control_plane "$host_address"
    kubeconfig "$state/node.kubeconfig" "https://$host_address:$(cut -d ' ' -f 2 "$state/ports")" node
    start kube-controller-manager "$programs_dir/kube-controller-manager" --kubeconfig "$state/kubeconfig" \
        --service-account-private-key-file "$state/accounts.key" --root-ca-file "$state/ca.crt" --use-service-account-credentials=false \
        --leader-elect=false --bind-address 127.0.0.1 --port 0 --secure-port 0
    start kube-scheduler "$programs_dir/kube-scheduler" --kubeconfig "$state/kubeconfig" --leader-elect=false \
        --bind-address 127.0.0.1 --port 0 --secure-port 0
    forward_service
    write_network_plugins
    start_containerd
    import_pause
    start_kubelet
    await kubelet sh -c "kubectl --kubeconfig '$state/kubeconfig' wait --for condition=Ready --timeout 1s node/$node_name"
    await kube-controller-manager kubectl --kubeconfig "$state/kubeconfig" get serviceaccount default
    echo "node $node_name is ready"
}

# Of several nodes the first records them, and the last puts them back: between, they are as a kubelet has set them.
record_sysctls() {
    mkdir -p "$sysctls_dir"
    [[ -e $sysctls_dir/values ]] || sysctl "${sysctls[@]}" >"$sysctls_dir/values"
    touch "$sysctls_dir/$namespace_name"
}

restore_sysctls() {
    rm -f "$sysctls_dir/$namespace_name"
    if [[ -e $sysctls_dir/values ]] && ! compgen -G "$sysctls_dir/ringfence-node*" >/dev/null; then
        sysctl -q -p "$sysctls_dir/values"
        rm -r "$sysctls_dir"
    fi
}

make_network() {
    ip netns add "$namespace_name"
    ip link add "rf-host$number" type veth peer name rf-node netns "$namespace_name"
    ip addr add "$host_address/30" dev "rf-host$number"
    ip link set "rf-host$number" up
    in_node sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.ip_forward=1
    in_node ip addr add "$node_address/30" dev rf-node
    in_node ip link set rf-node up
    in_node ip link set lo up
    in_node ip route add default via "$host_address"
    in_node iptables -t nat -A POSTROUTING -s "$pod_network" ! -d "$pod_network" -j MASQUERADE
    in_node iptables -N rf-policy
    in_node iptables -I FORWARD -j rf-policy
    in_node iptables -I INPUT -j rf-policy
}

# What kube-proxy would do for the one service that there is.
forward_service() {
    in_node iptables -t nat -A PREROUTING -d "$service_address" -p tcp --dport 443 -j DNAT \
        --to-destination "$host_address:$(cut -d ' ' -f 2 "$state/ports")"
}

# Each pod has an interface of the node to itself: what pods send to each other passes the node's rules, too.
write_network_plugins() {
    local name
    mkdir -p "$state/cni" "$state/cni-bin"
    for name in ptp host-local loopback; do
        ln -sf "/usr/lib/cni/$name" "$state/cni-bin/$name"
    done
    printf '#!/bin/sh\nexec python3 -I -S %q plugin\n' "$here/kubernetes/policies.py" >"$state/cni-bin/ringfence-policies"
    chmod 755 "$state/cni-bin/ringfence-policies"
    cat >"$state/cni/10-pods.conflist" <<CONFIG
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "$state/cni-data", "subnet": "$pod_network",
  "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "ringfence-policies", "state": "$state"}]}
CONFIG
}

# Without gVisor: Debian's package lacks its shim, and pods whose containers runc's shim starts by runsc never end.
start_containerd() {
    cat >"$state/containerd.toml" <<CONFIG
version = 2
root = "$state/containerd"
state = "$state/containerd-state"
[grpc]
  address = "$state/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/ringfence/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$state/cni-bin"
    conf_dir = "$state/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
CONFIG
    # Mounts of its own, with empty directories where it, the kubelet and their plugins write outside of its state.
    mkdir -p "$state/var-lib" "$state/var-log"
    start containerd nsenter --net="/run/netns/$namespace_name" unshare --mount --propagation private sh -c "
        mount --bind '$state/var-lib' /var/lib && mount --bind '$state/var-log' /var/log && mount -t tmpfs run /run &&
        exec containerd --config '$state/containerd.toml'"
    await containerd ctr --address "$state/containerd.sock" version
}

import_pause() {
    tar --numeric-owner --owner 0 --group 0 -C "$programs_dir" -cf "$state/pause.tar" pause
    docker import --change 'ENTRYPOINT ["/pause"]' "$state/pause.tar" localhost/ringfence/pause:1 >/dev/null
    rm "$state/pause.tar"
    give_image localhost/ringfence/pause:1
}

# give_image NAME: with the names that it would have if the node had fetched it, by tag and by digest.
give_image() {
    local ctr=(ctr --address "$state/containerd.sock" --namespace k8s.io images) digest
    docker save "$1" | "${ctr[@]}" import --no-unpack=false - >/dev/null
    digest=$("${ctr[@]}" list "name==$1" | awk 'NR == 2 { print $3 }')
    "${ctr[@]}" tag --force "$1" "${1%:*}@$digest" >/dev/null
}

start_kubelet() {
    local hierarchy
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [[ -L $hierarchy || ! -e $hierarchy/cgroup.procs ]] || mkdir -p "$hierarchy/$namespace_name"
    done
    cat >"$state/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $state/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: $state/node.crt
tlsPrivateKeyFile: $state/node.key
cgroupDriver: cgroupfs
cgroupRoot: /$namespace_name
failSwapOn: false
healthzPort: 0
resolvConf: ""
podPidsLimit: 4096
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
maxPods: 200
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 50
kubeAPIBurst: 100
CONFIG
    start kubelet nsenter --net="/run/netns/$namespace_name" --mount="/proc/$(<"$state/containerd.pid")/ns/mnt" \
        "$programs_dir/kubelet" --config "$state/kubelet.yaml" --kubeconfig "$state/node.kubeconfig" \
        --hostname-override "$node_name" --node-ip "$node_address" --root-dir "$state/kubelet" --container-runtime remote \
        --container-runtime-endpoint "unix://$state/containerd.sock" --runtime-cgroups /
    start policies nsenter --net="/run/netns/$namespace_name" python3 -I -S "$here/kubernetes/policies.py" follow "$state/"
}

# --- ending

command_of() { tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" || true; }

# stop NAME: the process that `start` has started; what else got its number since then is left alone.
stop() {
    local pid
    pid=$(cat "$state/$1.pid" 2>/dev/null) || return 0
    if command_of "$pid" | grep -q -F -e "$state/"; then
        kill "$pid" 2>/dev/null || true
        for _ in {1..100}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$state/$1.pid"
}

# What containerd leaves: a shim for each pod, and the pods' own processes, which are in the node's cgroup.
end_pods() {
    local pid pids hierarchy deadline=$((SECONDS + patience_s))
    for pid in $(pgrep -f -- "-address $state/containerd.sock"); do
        if [[ $(command_of "$pid") == *containerd-shim* ]]; then
            kill -KILL "$pid" 2>/dev/null || true
        fi
    done
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [[ -d $hierarchy/$namespace_name && ! -L $hierarchy ]] || continue
        while pids=$(find "$hierarchy/$namespace_name" -name cgroup.procs -exec cat {} +) && [[ -n $pids ]]; do
            ((SECONDS < deadline)) || { echo "processes in $hierarchy/$namespace_name do not end: $pids" >&2 && return 1; }
            kill -KILL $pids 2>/dev/null || true
            sleep 0.1
        done
        find "$hierarchy/$namespace_name" -depth -type d -exec rmdir {} +
    done
}

down() {
    local name
    for name in policies kubelet containerd kube-scheduler kube-controller-manager kube-apiserver etcd; do
        stop "$name"
    done
    if [[ -e $state/number ]]; then
        end_pods
        if [[ -e /run/netns/$namespace_name ]]; then ip netns delete "$namespace_name"; fi
        ip link delete "rf-host$number" 2>/dev/null || true
        restore_sysctls
    fi
    rm -rf --one-file-system "$state"
}

status() {
    local name pid
    for name in etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet policies; do
        pid=$(cat "$state/$name.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null && printf '%-24s process %s\n' "$name" "$pid"
    done
    kubectl --kubeconfig "$state/kubeconfig" get --raw /readyz >/dev/null
}

case ${1:-} in
    install) install "${2:-}" ;;
    missing) missing "${2:-}" ;;
    up)
        if [[ ${2:-} == node ]]; then
            up_node
        else
            refuse_second
            up_control_plane
        fi
        ;;
    image)
        shift
        for name in "$@"; do give_image "$name"; done
        ;;
    restart-api) # as if the API server had died
        stop kube-apiserver
        read -ra ports <"$state/ports"
        start_api_server "${ports[@]}"
        await kube-apiserver kubectl --kubeconfig "$state/kubeconfig" get --raw /readyz
        ;;
    status) status ;;
    down) down ;;
    *)
        sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
