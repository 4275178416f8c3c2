#!/usr/bin/env python3
"""Times of replicas over MPI beside their limits: bench_replica.py PROGRAM KMEANS MPIRUN...

16 MiB per rank, 64 B blocks. The yardstick is a memcpy of ranks x 16 MiB x copies by two pinned processes. Every
configuration is run several times, each in a process of its own; medians are printed. The last line is JSON. It ends with 1
if a limit is missed.
"""

import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

PROGRAM, KMEANS, MPIRUN = sys.argv[1], sys.argv[2], sys.argv[3:]
RUNS = int(os.environ.get("RUNS", "5"))
# Times of the authors' C++ library at 4 and 8 ranks with 4 copies, in ms, on a machine of the same kind.
AUTHORS = {
    4: {"load_all_ms": 78, "load_one_by_all_ms": 8.0, "load_one_by_one_ms": 34},
    8: {"load_all_ms": 82, "load_one_by_all_ms": 7.5, "load_one_by_one_ms": 21},
}
WITHOUT_CMA = ["--mca", "smsc", "^cma"]


def cma_works():
    """Whether a process may read another one's memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(b"replicas")
    child = os.fork()
    if child == 0:
        os.read(os.pipe()[0], 1)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    to = ctypes.create_string_buffer(8)
    local = Vector(ctypes.addressof(to), 8)
    remote = Vector(ctypes.addressof(memory), 8)
    read = libc.process_vm_readv(child, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return read == 8 and to.raw == b"replicas"


def run(ranks, *arguments, options=(), times=1):
    """Medians of the figures of several runs."""
    rows = []
    for _ in range(times):
        command = [*MPIRUN, *options, "-n", str(ranks), PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        rows.append(json.loads(lines[-1]))
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def memcpy(ranks, copies):
    return run(2, "memcpy", ranks * 16 * copies, times=3)["memcpy_ms"]


failed = []


def judge(name, value, limit):
    """A ratio and its limit."""
    good = value <= limit
    if not good:
        failed.append(name)
    return f"{value:5.2f} of {limit:.1f}{'' if good else ' MISSED'}"


def loads(row, ranks):
    for name in ["load_hundredth", "load_one_by_all", "load_one_by_one", "load_all"]:
        text = f"    {name:<16} {row[name + '_ms']:8.2f} ms {row[name + '_mib']:8.1f} MiB remote"
        # With four copies on four ranks everybody holds everything; with two there is something to be sent.
        peer = AUTHORS.get(ranks, {}).get(name + "_ms")
        if peer and row[name + "_mib"] > 0:
            text += f"   of the C++ library's {peer} ms: {judge(f'{name} {ranks}', row[name + '_ms'] / peer, 0.6)}"
        print(text)


cma = cma_works()
print(f"CMA: {'in use: processes may read each other' if cma else 'not permitted here'}; {RUNS} runs, medians\n")
result = {"cma": cma, "submit": [], "studies": []}
modes = [("CMA", (), 2.7)] if cma else []
for mode, options, limit in modes + [("no CMA", WITHOUT_CMA, 3.5)]:
    for ranks, copies in [(4, 2), (8, 4), (16, 4), (4, 4)]:
        copy = memcpy(ranks, copies)
        row = run(ranks, "store", copies, 256, 1, options=options, times=RUNS)
        name = f"submit {ranks} ranks r={copies} {mode}"
        ratio = row["submit_second_ms"] / copy
        # Four ranks with four copies are measured for the loads alone.
        text = judge(name, ratio, limit) if (ranks, copies) != (4, 4) else f"{ratio:5.2f}"
        print(
            f"{ranks} ranks, {copies} copies, {mode}: memcpy {copy:.1f} ms\n"
            f"    submit: first {row['submit_first_ms']:.1f} ms, second {row['submit_second_ms']:.1f} ms, later "
            f"{row['submit_later_ms']:.1f} ms, {row['submit_remote_mib']:.0f} MiB remote; second of memcpy: {text}\n"
            f"    asynchronous: begin {row['begin_ms']:.1f} ms, longest piece {row['longest_piece_ms']:.1f} ms, all "
            f"{row['pieces_ms']:.1f} ms; memory at the peak: {row['peak_of_paper']:.2f} of the paper's"
        )
        loads(row, ranks)
        result["submit"].append({**row, "mode": mode, "memcpy_ms": copy, "limit": limit})

print("\n8 ranks: ranges, permutation, copies")
studies = [(4, kib, 1) for kib in (16, 64, 1024, 4096)] + [(4, 256, 0), (1, 256, 1), (2, 256, 1), (3, 256, 1)]
for copies, kib, permuted in studies:
    row = run(8, "store", copies, kib, permuted, times=min(RUNS, 3))
    print(
        f"  {copies} copies, {kib} KiB, permutation {'on' if permuted else 'off'}: submit {row['submit_second_ms']:.1f} ms"
    )
    loads(row, 0)
    result["studies"].append(row)

print("\nRecovery of one rank's 16 MiB by all, replicas beside files")
with tempfile.TemporaryDirectory(dir=".") as folder:
    for ranks in (4, 8):
        row = run(ranks, "files", 2, folder, times=min(RUNS, 3))
        print(
            f"  {ranks} ranks: replicas {row['replicas_ms']:.2f} ms ({row['replicas_remote_mib']:.1f} MiB remote), files in the "
            f"page cache {row['files_warm_ms']:.2f} ms, on the disk {row['files_cold_ms']:.2f} ms"
        )
        result.setdefault("files", []).append(row)

print("\nLost copies made again, beside plain sends of the same messages between the same ranks")
for ranks, copies in [(4, 2), (8, 2), (8, 4), (16, 4)]:
    row = run(ranks, "remake", copies, times=RUNS)
    ratio = row["remake_ms"] / row["plain_sends_ms"]
    print(
        f"  {ranks} ranks, {copies} copies: {row['remade_mib']:.1f} MiB in {row['remake_ms']:.2f} ms, plain sends "
        f"{row['plain_sends_ms']:.2f} ms: {judge(f'remake {ranks} {copies}', ratio, 2.0)}; kill to usable "
        f"{row['kill_to_usable_ms']:.0f} ms"
    )
    result.setdefault("remake", []).append(row)

print("\nShare of replicas in k-means: 65,536 points of a rank, 500 iterations, 4 copies (the paper's: at most 1.6 %)")
cores = os.cpu_count()
for ranks in sorted({2, 4, 8, min(cores, 16)}):
    for every in (10, 50):
        shares = []
        for _ in range(min(RUNS, 3)):
            with tempfile.TemporaryDirectory() as store:
                options = ["--replicas", "4", "--replicate-every", str(every), "--store", store]
                command = [*MPIRUN, "-n", str(ranks), KMEANS, *options]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            told = re.search(r"\((\S+) %\) to keep", done.stdout)
            if not told:
                sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
            shares.append(float(told[1]))
        share = statistics.median(shares)
        # The limit holds for one rank per core, and for the paper's interval.
        limited = ranks == min(cores, 16) and every == 50
        text = f"; {judge(f'k-means {ranks} ranks', share, 1.6)} %" if limited else ""
        print(f"  {ranks} ranks on {cores} cores, a state every {every} iterations: {share:.2f} %{text}")
        result.setdefault("kmeans", []).append({"ranks": ranks, "every": every, "percent": share})

result["missed"] = failed
print(json.dumps(result))
sys.exit(1 if failed else 0)
