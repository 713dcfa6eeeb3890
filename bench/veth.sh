#!/usr/bin/env bash
# Compares Godwit on af_xdp with peers, over veth pairs in network namespaces. Needs root and two
# cores.
#
#   bench/veth.sh echo [GODWIT] [SECONDS] [ROUNDS]
#       Packets per second that return from `echo`, and from dpdk-testpmd (macswap on net_af_xdp).
#   bench/veth.sh router [GODWIT] [SECONDS] [ROUNDS]
#       Bits per second of iperf3 through `ipv4`, and through the forwarding of the kernel.
#   bench/veth.sh hold [GODWIT] [SECONDS] [PORT]...
#       Highest rate at which `echo` loses no packet, held for SECONDS (RFC 2544). Also prints the
#       counters of the generator, Godwit and the kernel's interfaces, for comparison. PORT is
#       af_xdp, or a DPDK driver such as net_af_xdp (needs a build with --features dpdk). The
#       environment sets the frame size (SIZE=60) and the first rate (RATE_MAX=400kpps).
#
# Rounds of the candidates alternate, so that other load on the machine affects both. Each round
# prints one line: the candidate and its result.
set -euo pipefail
measurement=${1:?echo, router or hold}
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
# Bash runs a trap only after the foreground command has ended. Long commands therefore run in the
# background, and the script waits for them.
trap 'exit 143' TERM INT
# Starts a program in a namespace in the background, as process $pid, without a shell as its parent.
start() {
    ip netns exec "$name-$1" "${@:2}" >"$folder/output-$1" 2>&1 &
    pid=$!
}
# Command of a program with priority over the other programs of the machine. If the kernel groups
# processes by session (autogroup), niceness has an effect only within a session. The command
# therefore also sets the niceness of its session.
first='[ ! -w /proc/self/autogroup ] || echo -20 >/proc/self/autogroup; core=$1; shift; exec nice -n -20 taskset -c "$core" "$@"'
start_first() { start "$1" setsid sh -c "$first" first "${@:2}"; }
stop() { kill -TERM "$1" && wait "$1" || { echo "bench: a program ended early. Output:" >&2; cat "$folder"/output-* >&2; exit 1; }; }
in_() { ip netns exec "$name-$1" "${@:2}"; }
mac() { in_ "$1" cat "/sys/class/net/$2/address"; }
# Creates a veth pair between two namespaces: NAMESPACE INTERFACE NAMESPACE INTERFACE. Checksum
# offload and GRO are off.
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
# Prints the packets per second that return while the generator runs.
rate() {
    sleep 1
    local before after start end
    start=$(date +%s%N); before=$(received)
    sleep "$seconds"
    end=$(date +%s%N); after=$(received)
    echo "$1 $(( (after - before) * 1000000000 / (end - start) ))"
}

if [ "$measurement" = echo ]; then
    cable a eth0 r port
    # 64 flows of the shortest frames, so that the result does not depend on a single flow hash. A
    # zero payload returns every frame by port 0.
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
        start_first a 0 "$godwit" run "$folder/generate.toml"
        local generator=$pid
        rate "$1"
        stop "$generator"
    }
    for _ in $(seq "$rounds"); do
        start_first r 1 "$godwit" run "$folder/echo.toml"
        echo=$pid
        sleep 1
        measure godwit
        stop "$echo"
        # The kernel releases the queue of the last socket with a delay.
        sleep 0.5
        (sleep 100 | in_ r setsid -w sh -c "$first" first 0,1 dpdk-testpmd --no-huge -m 512 --no-pci --file-prefix "$name" -l 0,1 --vdev net_af_xdp0,iface=port \
            -- --forward-mode=macswap --auto-start --nb-cores=1 --total-num-mbufs=32768 >"$folder/testpmd.log" 2>&1) &
        sleep 4
        measure testpmd
        ip netns pids "$name-r" | xargs -r kill -9
        # dpdk-testpmd leaves its XDP program attached.
        in_ r ip link set port xdp off
        sleep 1
    done
    exit
fi

if [ "$measurement" = hold ]; then
    kinds=("${@:4}")
    [ ${#kinds[@]} -gt 0 ] || kinds=(af_xdp)
    # One veth pair for each direction, so that each interface counts one direction.
    cable a to r left
    cable a from r right
    port() { # NAME INTERFACE KIND NUMBER
        echo "[[port]]"; echo "name = \"$1\""
        case $3 in
        af_xdp) echo "kind = \"af_xdp\""; echo "interface = \"$2\""; echo "take = \"all\""; echo "rx_packets = 8192"; echo "tx_packets = 8192" ;;
        *) echo "kind = \"dpdk\""; echo "device = \"$3$4,iface=$2\""; echo "receive_ring = 8192"; echo "transmit_ring = 8192" ;;
        esac
    }
    edge() { echo "[[chain]]"; echo "from = \"$1\""; echo "to = \"$2\""; }
    {
        echo "[engine]"; echo "pin = false"; echo "in_flight_packets = 16384"
        echo "[[port]]"; echo "name = \"traffic\""; echo "kind = \"synthetic\""; echo "size = ${SIZE:-60}"; echo "flows = 256"
        port to to af_xdp; port from from af_xdp; edge traffic to; edge from traffic
    } >"$folder/generate.toml"
    count() { in_ "$1" cat "/sys/class/net/$2/statistics/$3_packets"; }
    for kind in "${kinds[@]}"; do
        {
            echo "[engine]"; echo "pin = false"; echo "in_flight_packets = 16384"
            port left left "$kind" 0; port right right "$kind" 1
            echo "[[function]]"; echo "name = \"echo\""; echo "kind = \"echo\""
            edge left echo; edge echo right
        } >"$folder/device.toml"
        before=($(count a to tx) $(count r left rx) $(count r right tx) $(count a from rx))
        start_first r 1 "$godwit" run "$folder/device.toml" --json "$folder/device.json"
        device=$pid
        sleep 2
        in_ a setsid sh -c "$first" first 0 "$godwit" generate "$folder/generate.toml" --search --rate "${RATE_MAX:-400kpps}" --seconds 2 --resolution 0.1 \
            --hold "$seconds" --json "$folder/generate.json" >/dev/null &
        wait $! || true
        stop "$device"
        after=($(count a to tx) $(count r left rx) $(count r right tx) $(count a from rx))
        python3 - "$kind" "$folder" "${before[@]}" "${after[@]}" <<'P'
import json, sys
kind, folder, numbers = sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]]
sent_by_kernel, left_by_kernel, right_by_kernel, received_by_kernel = (numbers[i + 4] - numbers[i] for i in range(4))
rows = json.load(open(folder + "/generate.json"))["rows"]
trials = [row for row in rows if row["impl"] != "throughput"]
report = json.load(open(folder + "/device.json"))
report = report.get("report", report)
counter = lambda port, name: report["counters"].get(f'port_{name}{{port="{port}"}}', 0)
for row in trials:
    print(f'{kind} {row["impl"]} {row["offered_pps"]:.0f} pps for {row["seconds"]:.0f} s: {row["sent"]} sent, {row["lost"]} lost, '
          f'{row["duplicates"]} duplicates, {row["reordered"]} reordered, p50 {row["p50_us"]:.0f} p99 {row["p99_us"]:.0f} us')
sent, received = sum(row["sent"] for row in trials), sum(row["received"] for row in trials)
device_received, missed, device_sent = counter("left", "received_packets"), counter("left", "missed"), counter("right", "sent_packets")
conserved = report["conservation"]
print(f"{kind} generator sent {sent}, its kernel {sent_by_kernel}; device's kernel received {left_by_kernel}, device {device_received} + {missed} missed; "
      f"device sent {device_sent}, its kernel {right_by_kernel}; generator's kernel received {received_by_kernel}, generator {received}; device {conserved}")
P
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
    # XDP on a veth interface disables segmentation offload at its peer. Disable it for the kernel
    # too.
    segments off
    iperf kernel
    segments on
done
