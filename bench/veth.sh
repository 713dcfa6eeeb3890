#!/usr/bin/env bash
# Godwit on af_xdp beside its peers, over veth pairs in network namespaces: as root, with two cores.
#
#   bench/veth.sh echo [GODWIT] [SECONDS] [ROUNDS]     packets a second that come back: echo, and dpdk-testpmd macswap on net_af_xdp
#   bench/veth.sh router [GODWIT] [SECONDS] [ROUNDS]   bits a second of iperf3 through ipv4, and through the kernel's own forwarding
#
# Rounds alternate, so that what else the machine does hits both. One line a round: who, and the figure.
set -euo pipefail
what=${1:?echo or router}
godwit=$(realpath "${2:-target/release/godwit}")
seconds=${3:-3}
rounds=${4:-3}
name=gw-bench-$$
folder=$(mktemp -d)
spaces=(a r b)

clean() {
    for space in "${spaces[@]}"; do
        ip netns pids "$name-$space" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        ip netns del "$name-$space" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean EXIT
# A program of a namespace in the background, as process $pid, without a shell in front of it.
start() {
    ip netns exec "$name-$1" "${@:2}" >"$folder/said-$1" 2>&1 &
    pid=$!
}
stop() { kill -TERM "$1" && wait "$1" || { echo "bench: it ended by itself:" >&2; cat "$folder"/said-* >&2; exit 1; }; }
in_() { ip netns exec "$name-$1" "${@:2}"; }
mac() { in_ "$1" cat "/sys/class/net/$2/address"; }
# Both ends of a cable; checksums are done where they belong, and nothing is merged.
cable() {
    ip link add "$2" netns "$name-$1" type veth peer name "$4" netns "$name-$3"
    for end in "$1 $2" "$3 $4"; do
        read -r space interface <<<"$end"
        in_ "$space" ethtool -K "$interface" tx off gro off >/dev/null
        in_ "$space" ip link set "$interface" up
    done
}
for space in "${spaces[@]}"; do
    ip netns add "$name-$space"
    in_ "$space" ip link set lo up
    in_ "$space" sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
done

received() { in_ a ip -s -j link show dev eth0 | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["stats64"]["rx"]["packets"])'; }
# Packets a second that come back while the generator runs.
rate() {
    sleep 1
    local before after start end
    start=$(date +%s%N); before=$(received)
    sleep "$seconds"
    end=$(date +%s%N); after=$(received)
    echo "$1 $(( (after - before) * 1000000000 / (end - start) ))"
}

if [ "$what" = echo ]; then
    cable a eth0 r port
    # Too many flows for luck, as short as frames get; each goes back to port 0.
    cat >"$folder/generate.toml" <<'T'
[engine]
pin = false
[[port]]
name = "make"
kind = "synthetic"
size = 60
flows = 64
payload = "zero"
[[port]]
name = "out"
kind = "af_xdp"
interface = "eth0"
[[chain]]
from = "make"
to = "out"
T
    cat >"$folder/echo.toml" <<'T'
[engine]
pin = false
[[port]]
name = "port"
kind = "af_xdp"
interface = "port"
take = "all"
[[function]]
name = "back"
kind = "echo"
[[chain]]
from = "port"
to = "back"
[[chain]]
from = "back"
to = "egress"
T
    measure() {
        start a nice -n -20 taskset -c 0 "$godwit" run "$folder/generate.toml"
        local generator=$pid
        rate "$1"
        stop "$generator"
    }
    for _ in $(seq "$rounds"); do
        start r nice -n -20 taskset -c 1 "$godwit" run "$folder/echo.toml"
        echo=$pid
        sleep 1
        measure godwit
        stop "$echo"
        # The last socket's queue is given back a moment later.
        sleep 0.5
        (sleep 100 | in_ r nice -n -20 dpdk-testpmd --no-huge -m 512 --no-pci --file-prefix "$name" -l 0,1 --vdev net_af_xdp0,iface=port \
            -- --forward-mode=macswap --auto-start --nb-cores=1 --total-num-mbufs=32768 >"$folder/testpmd.log" 2>&1) &
        sleep 4
        measure testpmd
        ip netns pids "$name-r" | xargs -r kill -9
        # It leaves its program attached.
        in_ r ip link set port xdp off
        sleep 1
    done
    exit
fi

cable a eth0 r left
cable b eth0 r right
in_ a ip addr add 10.1.0.2/24 dev eth0; in_ r ip addr add 10.1.0.1/24 dev left
in_ b ip addr add 10.2.0.2/24 dev eth0; in_ r ip addr add 10.2.0.1/24 dev right
in_ a ip route add default via 10.1.0.1; in_ b ip route add default via 10.2.0.1
cat >"$folder/router.toml" <<T
[engine]
pin = false
idle = "${IDLE:-sleep}"
[[port]]
name = "left"
kind = "af_xdp"
interface = "left"
[[port]]
name = "right"
kind = "af_xdp"
interface = "right"
[[function]]
name = "route"
kind = "ipv4"
[[function.next_hop]]
name = "a"
port = "left"
destination_mac = "$(mac a eth0)"
source_mac = "$(mac r left)"
[[function.next_hop]]
name = "b"
port = "right"
destination_mac = "$(mac b eth0)"
source_mac = "$(mac r right)"
[[function.route]]
prefix = "10.1.0.0/24"
next_hop = "a"
[[function.route]]
prefix = "10.2.0.0/24"
next_hop = "b"
[[chain]]
from = "left"
to = "route"
[[chain]]
from = "right"
to = "route"
[[chain]]
from = "route"
verdict = "forward"
to = "egress"
[[chain]]
from = "route"
to = "drop"
T
start b iperf3 -s
sleep 0.5
iperf() {
    in_ a iperf3 -c 10.2.0.2 -t "$seconds" -O 1 -J | python3 -c \
        'import json,sys; end=json.load(sys.stdin)["end"]; print(sys.argv[1], round(end["sum_received"]["bits_per_second"]/1e6), "Mbit/s")' "$1"
}
forward() { in_ r sh -c "echo $1 > /proc/sys/net/ipv4/ip_forward"; }
segments() { for end in "a eth0" "b eth0" "r left" "r right"; do read -r s i <<<"$end"; in_ "$s" ethtool -K "$i" tso "$1" gso "$1" >/dev/null; done; }
for _ in $(seq "$rounds"); do
    forward 0
    start r "$godwit" run "$folder/router.toml"
    router=$pid
    sleep 1
    iperf godwit
    stop "$router"
    forward 1
    # XDP on a cable forbids its far end to send many segments as one; so here too.
    segments off
    iperf kernel
    segments on
done
