"""Light from a dipole in a ring resonator, in Meep, which writes a folder of files for each rank.

mpirun -np 8 python3 waves.py OUT                 makes OUT/step-0000 ... OUT/step-0011
mpirun -np 8 python3 waves.py NEW --restart STEP  goes on from the folder STEP, into NEW
"""
import argparse
import re

import meep as mp

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("out")
args.add_argument("--restart")
args.add_argument("--steps", type=int, default=12)
args.add_argument("--resolution", type=int, default=8)
args.add_argument("--every", type=float, default=1.5, help="time between checkpoints")
args = args.parse_args()
mp.verbosity(0)

glass = mp.Medium(index=3.4)
sim = mp.Simulation(
    cell_size=mp.Vector3(8, 8, 3),
    geometry=[mp.Cylinder(radius=2.5, height=0.8, material=glass),
              mp.Cylinder(radius=1.6, height=0.8),
              mp.Block(mp.Vector3(mp.inf, 0.6, 0.8), center=mp.Vector3(0, -3), material=glass)],
    sources=[mp.Source(mp.GaussianSource(0.25, fwidth=0.15), component=mp.Ey,
                       center=mp.Vector3(-2.5, -3, 0), size=mp.Vector3(0, 0.6, 0.8))],
    boundary_layers=[mp.PML(0.8)],
    resolution=args.resolution)
first = 0
if args.restart:
    first = int(re.search(r"(\d+)/*$", args.restart)[1]) + 1
    sim.load(args.restart, single_parallel_file=False)
sim.init_sim()
for number in range(first, args.steps):
    sim.run(until=args.every if number > 0 else 8)
    sim.dump(f"{args.out}/step-{number:04}", single_parallel_file=False)
    energy = sim.electric_energy_in_box(center=mp.Vector3(), size=sim.cell_size)
    if mp.am_master():
        print("step", number, "time", sim.meep_time(), "energy", energy, flush=True)
