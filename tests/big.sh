#!/usr/bin/env bash
# 2.5 GiB in one rank, and more than 4 GiB on two, through MPI: saved, restored on the same and on another number of
# ranks, and compared number by number; and 2.5 GiB of one rank in the memory of three. Takes 5 GiB of disk and 12 GiB of
# memory.
set -euo pipefail
program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# round ELEMENTS RANKS OTHER MPIRUN...
round() {
    local elements=$1 ranks=$2 other=$3
    shift 3
    timeout 1200 "$@" -n "$ranks" "$program" save "$folder/store" "$elements"
    for count in "$ranks" "$other"; do
        timeout 1200 "$@" -n "$count" "$program" check "$folder/store" "$elements"
    done
    rm -rf "$folder/store"
}

round $((5 << 26)) 1 2 "$@"
round $(((4 << 27) + (1 << 24))) 2 3 "$@"
timeout 1200 "$@" -n 3 "$program" replicas 2 $((5 << 26))
echo "big arrays: all numbers are back"
