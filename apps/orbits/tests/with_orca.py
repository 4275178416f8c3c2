#!/usr/bin/env python3
"""Compares a program's orbit counts with those of orca-graphlets on random graphs.

usage: with_orca.py PROGRAM

PROGRAM is run as `PROGRAM count --edges FILE --out FILE.txt` and is to write one line of 73
space-separated counts per vertex. The first difference ends the script with a sentence and
exit code 1.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
    from orca import orca_nodes
except ImportError:
    sys.exit("The package orca-graphlets is missing; install it: pip install orca-graphlets")

ORBITS = 73


def uniform(n, edges, seed):
    """A graph of n vertices and about so many edges; the last vertex has a neighbour, so
    that the edge list tells the number of vertices."""
    rng = random.Random(seed)
    pairs = {tuple(sorted(rng.sample(range(n), 2))) for _ in range(edges)}
    return n, sorted(pairs | {(0, n - 1)})


def preferential(n, links, seed):
    """A graph with hubs: each new vertex joins `links` ends of earlier edges."""
    rng = random.Random(seed)
    ends = [0, 1]
    pairs = {(0, 1)}
    for v in range(2, n):
        for u in {rng.choice(ends) for _ in range(links)}:
            pairs.add((u, v))
            ends += [u, v]
    return n, sorted(pairs)


def grid(side):
    """A square grid."""
    across = [(v, v + 1) for v in range(side * side) if (v + 1) % side]
    down = [(v, v + side) for v in range(side * (side - 1))]
    return side * side, sorted(across + down)


GRAPHS = {
    "a dense graph": uniform(16, 70, 1),
    "a half-full graph": uniform(30, 200, 2),
    "a sparse graph": uniform(300, 500, 3),
    "a forest-like graph": uniform(400, 330, 4),
    "a graph with hubs": preferential(150, 2, 5),
    "a denser graph with hubs": preferential(80, 5, 6),
    "a grid": grid(14),
}


def counts_of_program(program, folder, edges):
    source = Path(folder) / "graph.edges"
    target = Path(folder) / "graph.edges.txt"
    source.write_text("".join(f"{a} {b}\n" for a, b in edges))
    command = [program, "count", "--edges", str(source), "--out", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"Cannot run {program}: {error}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with code {done.returncode}: {done.stderr.strip()}")
    if not target.exists():
        sys.exit(f"{' '.join(command)} ended well, but wrote no {target.name}")
    lines = target.read_text().splitlines()
    try:
        return [[int(field) for field in line.split()] for line in lines]
    except ValueError as error:
        sys.exit(f"{target.name} has a field that is no count: {error}")


def compare(name, counts, expected):
    if len(counts) != len(expected):
        sys.exit(f"On {name} there are {len(counts)} lines, but {len(expected)} vertices.")
    for vertex, (row, right) in enumerate(zip(counts, expected)):
        if len(row) != ORBITS:
            sys.exit(f"On {name} vertex {vertex} has {len(row)} columns instead of {ORBITS}.")
        for orbit in range(ORBITS):
            if row[orbit] != right[orbit]:
                sys.exit(
                    f"On {name} vertex {vertex} is {row[orbit]} times in orbit {orbit}, "
                    f"but orca-graphlets counts {right[orbit]}."
                )


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM")
    for name, (vertices, edges) in GRAPHS.items():
        expected = orca_nodes(numpy.array(edges), num_nodes=vertices, graphlet_size=5)
        with tempfile.TemporaryDirectory() as folder:
            counts = counts_of_program(sys.argv[1], folder, edges)
        compare(name, counts, expected.tolist())
        print(f"{name}: {vertices} vertices, {len(edges)} edges: equal")


if __name__ == "__main__":
    main()
