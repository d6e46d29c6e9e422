#!/bin/sh
# bench/ranks.sh PART: what several processes or machines bring (build/train_mpi), at preset paper.
#   one        2 ranks of one thread against build/train_tiny with 2 threads, the same batch, in turns; three minutes
#   links      2 and 4 ranks, each in a network namespace with a link of 1 and of 10 Gbit/s, the sums after and during the
#              backward, against what the model says; three minutes. Needs root, ip, tc and Open MPI
#   model S    what the model says of 2 to 64 machines whose step takes S seconds without any sum
# BATCH=1: sequences of a rank (links), ROUNDS=5 (links: 1), RATES="1 10" in Gbit/s, RANKS="2 4", STEPS=5,
# TEXT=build/kjv.txt, MPIRUN=mpirun, BYTES=67600000 of gradients, LATENCY=0.00003 seconds of a message.
cd "$(dirname "$0")/.." || exit 2
RATES=${RATES:-1 10} RANKS=${RANKS:-2 4} STEPS=${STEPS:-5} TEXT=${TEXT:-build/kjv.txt} BATCH=${BATCH:-1}
MPIRUN=${MPIRUN:-mpirun} BYTES=${BYTES:-67600000} LATENCY=${LATENCY:-0.00003}
unset OPENBLAS_CORETYPE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
lack() { echo "ranks.sh: $*" >&2; exit 2; }
needs() { for f; do [ -r "$f" ] || command -v "$f" > /dev/null || lack "needs $f"; done; }
unmake() {
    i=0
    while ip link del "ranksv$i" 2> /dev/null; do i=$((i + 1)); done
    for i in $(ip netns list | sed -n 's/^\(ranks[0-9]*\).*/\1/p'); do ip netns del "$i"; done
    ip link del ranks 2> /dev/null
}
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"; [ ! "$made" ] || unmake' EXIT
trap 'exit 1' INT TERM
made=

# Seconds that the sums of a step of n ranks still cost after its backward. A ring sends 2 (n-1) times the n-th part of the bytes,
# of which headers make 1.045; each message of a piece (1 MB, of more than 16 ranks 64 KB a rank) also waits for the latency of
# others, eight pieces at a time. During a backward, two thirds of a step, sums of all but its last eighth are hidden as far as they fit in there.
MODEL='function sums(n, gbit, bytes, latency,   piece) {
    piece = n > 16 ? n * 2^16 : 2^20
    return 2 * (n - 1) * (bytes / n * 8.36e-9 / gbit + latency * bytes / piece / 8)
}
function step(alone, n, gbit, overlap, bytes, latency,   s, hides) {
    s = sums(n, gbit, bytes, latency)
    hides = s * 7 / 8
    if (hides > alone * 2 / 3 * 7 / 8) hides = alone * 2 / 3 * 7 / 8
    return alone + s - (overlap ? hides : 0)
}'

# Trains a few steps and prints the median seconds of one but for the first: seconds BATCH-OF-ALL COMMAND..
seconds() {
    sequences=$1; shift
    "$@" --preset paper --seq 512 --steps "$STEPS" --set eval_tokens=600 --csv "$F/csv" --out "$F/out.safetensors" "$TEXT" \
        > "$F/log" 2>&1 || { cat "$F/log" >&2; exit 1; }
    awk -F, -v tokens=$((sequences * 512)) 'NR > 2 { print tokens / $6 }' "$F/csv" | sort -n |
        awk '{ t[NR] = $1 } END { print (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2 }'
}
share() { sed -n 's/^\([0-9.]*\) % of this time.*/\1/p' "$F/log"; }

one() {
    needs build/train_tiny build/train_mpi "$MPIRUN" "$TEXT"
    echo "seconds of a step of 8 x 512 tokens"
    printf '%-6s %22s %22s %8s %8s %22s\n' round "1 process, 2 threads" "2 ranks, 1 thread" speed "in sums" \
        "sums meanwhile: speed"
    round=1
    while [ "$round" -le "${ROUNDS:-5}" ]; do
        t=$(seconds 8 build/train_tiny --threads 2 --batch 8) || exit 1
        m=$(seconds 8 "$MPIRUN" -n 2 build/train_mpi --threads 1 --batch 4 --overlap 0) || exit 1
        s=$(share)
        o=$(seconds 8 "$MPIRUN" -n 2 build/train_mpi --threads 1 --batch 4 --overlap 1) || exit 1
        echo "$round $t $m $s $o" | tee -a "$F/rounds" |
            awk '{ printf "%-6d %22.2f %22.2f %8.2f %6.1f %% %22.2f\n", $1, $2, $3, $2 / $3, $4, $2 / $5 }'
        round=$((round + 1))
    done
    for column in 3 5; do
        awk -v c=$column '{ print $2 / $c }' "$F/rounds" | sort -n | awk -v c=$column '{ r[NR] = $1 } END {
            printf "speed over that of one process, sums %s: median %.2f, %.2f to %.2f\n",
                c == 3 ? "after the backward" : "during it", (r[int((NR + 1) / 2)] + r[int(NR / 2) + 1]) / 2, r[1],
                r[NR] }'
    done
}

# n namespaces at a bridge
make_links() {
    unmake
    made=1
    { ip link add ranks type bridge && ip link set ranks up && ip addr add 10.77.0.254/24 dev ranks; } 2> "$F/why" ||
        lack "cannot make a bridge: $(head -n 1 "$F/why")"
    i=0
    while [ "$i" -lt "$1" ]; do
        { ip netns add "ranks$i" && ip link add "ranksv$i" type veth peer name eth0 netns "ranks$i" &&
            ip link set "ranksv$i" master ranks up && ip -n "ranks$i" link set lo up &&
            ip -n "ranks$i" addr add "10.77.0.$((i + 1))/24" dev eth0 && ip -n "ranks$i" link set eth0 up
        } 2> "$F/why" || lack "cannot make namespaces: $(head -n 1 "$F/why")"
        i=$((i + 1))
    done
}

# Both directions of each link at so many Gbit/s: N RATE
shape_links() {
    shape="root tbf rate $2gbit burst $(($2 * 100 + 150))kb latency 50ms"
    i=0
    while [ "$i" -lt "$1" ]; do
        # shellcheck disable=SC2086 # several words
        { tc qdisc add dev "ranksv$i" $shape && tc -n "ranks$i" qdisc add dev eth0 $shape; } 2> "$F/why" ||
            lack "cannot shape links: $(head -n 1 "$F/why")"
        i=$((i + 1))
    done
}

# mpirun over n namespaces: instead of ssh, an agent that enters the one named and gives it a host name of its own
over_links() {
    n=$1; shift
    hosts=$(awk -v n="$n" 'BEGIN { for (i = 0; i < n; i++) printf "%sranks%d:1", i ? "," : "", i }')
    "$MPIRUN" --mca plm_rsh_agent "$F/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_if_include 10.77.0.0/24 --mca mpi_yield_when_idle 1 --bind-to none -host "$hosts" -n "$n" "$@"
}

links() {
    needs build/train_mpi "$MPIRUN" ip tc unshare "$TEXT"
    [ "$(id -u)" = 0 ] || lack "links needs root"
    "$MPIRUN" --version 2> /dev/null | grep -q 'Open MPI' || lack "links needs the mpirun of Open MPI"
    cat > "$F/agent" <<- 'END'
	#!/bin/sh
	while case $1 in -*) ;; *) false;; esac; do shift; done
	host=$1; shift
	exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; eval "$1"' "$host" "$*"
	END
    chmod +x "$F/agent"
    echo "$BATCH x 512 tokens a rank, one thread each; seconds of a step"
    printf '%5s %8s %9s | %8s %6s %8s | %8s %6s %8s\n' ranks Gbit/s unshaped after model "in sums" meanwhile model "in sums"
    for n in $RANKS; do
        for rate in $(round=0; while [ "$((round += 1))" -le "${ROUNDS:-1}" ]; do echo "$RATES"; done); do
            make_links "$n"
            alone=$(seconds $((n * BATCH)) over_links "$n" build/train_mpi --threads 1 --batch "$BATCH" --overlap 0) || exit 1
            shape_links "$n" "$rate"
            row="$n $rate $alone"
            for overlap in 0 1; do
                t=$(seconds $((n * BATCH)) over_links "$n" build/train_mpi --threads 1 --batch "$BATCH" \
                    --overlap $overlap) || exit 1
                row="$row $t $(share)"
            done
            echo "$row" | awk -v bytes="$BYTES" -v latency="$LATENCY" "$MODEL"'
                { printf "%5d %8g %9.2f | %8.2f %6.2f %6.1f %% | %8.2f %6.2f %6.1f %%\n", $1, $2, $3,
                    $4, step($3, $1, $2, 0, bytes, latency), $5, $6, step($3, $1, $2, 1, bytes, latency), $7 }'
        done
    done
}

model() {
    case $1 in *[!0-9.]*) lack "$1 is no number of seconds";; esac # of 2,3 awk would read 2
    awk -v alone="$1" -v rates="$RATES" -v bytes="$BYTES" -v latency="$LATENCY" "$MODEL"'
        BEGIN {
            if (alone + 0 <= 0) { print "ranks.sh: model needs the seconds of a step" > "/dev/stderr"; exit 2 }
            printf "%8s", "machines"
            i = split(rates, rate, " ")
            for (k = 1; k <= i; k++) printf " | %3g Gbit/s: after meanwhile", rate[k]
            print " (times the speed of one)"
            for (n = 2; n <= 64; n *= 2) {
                printf "%8d", n
                for (k = 1; k <= i; k++)
                    printf " | %17.1f %9.1f", n * alone / step(alone, n, rate[k], 0, bytes, latency),
                        n * alone / step(alone, n, rate[k], 1, bytes, latency)
                print ""
            }
        }'
}

case $1 in
one) one;;
links) links;;
model) model "$2";;
*) lack "usage: bench/ranks.sh one | links | model SECONDS";;
esac
