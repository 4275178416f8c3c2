#!/usr/bin/env bash
# The time for which checkpoints block a program, by the number of ranks that share the cores and the state: one rank of
# all cores, and 2, 4 and 8 ranks of one core each. Prints ratios to the one rank, and to a copy and a read of the state.
set -euo pipefail
program=$1
mib=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for ranks in 1 2 4 8; do
    timeout 1200 "$@" --bind-to none -n "$ranks" "$program" "$folder/store" "$mib" >>"$folder/rows"
    rm -rf "$folder/store"
done
python3 - "$folder/rows" <<'PYTHON'
import json, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
first = rows[0]
print(f"Blocked, {first['mib']} MiB on all ranks together; medians. Limit for two ranks: 1.15 of one rank.")
print(f"{'ranks':>6}{'threads':>8}{'memcpy ms':>11}{'read ms':>9}   changed        blocked ms  of one rank  of memcpy  of read")
for row in rows:
    for name in ["all", "hundredth"]:
        time = row[f"{name}_blocked_ms"]
        print(
            f"{row['ranks']:>6}{row['threads']:>8}{row['memcpy_ms']:>11.1f}{row['read_ms']:>9.1f}   {name:<12}"
            f"{time:>13.1f}{time / first[f'{name}_blocked_ms']:>13.2f}{time / row['memcpy_ms']:>11.2f}{time / row['read_ms']:>9.2f}"
        )
two = rows[1]
ratios = {name: round(two[f"{name}_blocked_ms"] / first[f"{name}_blocked_ms"], 3) for name in ["all", "hundredth"]}
print(json.dumps({"blocked_two_of_one": ratios, "limit": 1.15}))
PYTHON
