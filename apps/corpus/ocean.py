"""An ocean basin and a circumpolar channel in Veros; every rank writes its part of the state.

mpirun -np 8 python3 ocean.py OUT                 makes OUT/step-0000 ... OUT/step-0011
mpirun -np 8 python3 ocean.py NEW --restart STEP  goes on from the folder STEP, into NEW
"""
import argparse
import os
import re

import netCDF4
from veros import runtime_settings, veros_routine

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("out")
args.add_argument("--restart")
args.add_argument("--steps", type=int, default=12)
args.add_argument("--every", type=int, default=8, help="time steps between checkpoints")
args.add_argument("--deflate", type=int, default=0, help="level of deflate in the files")
args = args.parse_args()
packed = dict(zlib=args.deflate > 0, shuffle=args.deflate > 0, complevel=args.deflate)
runtime_settings.num_proc = (4, 2)
runtime_settings.diskless_mode = True
runtime_settings.loglevel = "warning"

from veros.setups.acc.acc import ACCSetup  # noqa: E402  (after the settings)


class Ocean(ACCSetup):
    """Veros' own example, on a finer grid."""

    @veros_routine
    def set_parameter(self, state):
        super().set_parameter(state)
        settings = state.settings
        settings.nx, settings.ny = 40, 56
        settings.dt_mom *= 0.75
        settings.dt_tracer *= 0.75
        settings.A_h *= 0.75**3

    @veros_routine
    def set_grid(self, state):
        super().set_grid(state)
        vs = state.variables
        vs.dxt = vs.dxt * 0.75
        vs.dyt = vs.dyt * 0.75

    @veros_routine
    def set_diagnostics(self, state):
        state.diagnostics.clear()


sim = Ocean()
sim.setup()
vs = sim.state.variables
rank = runtime_settings.mpi_comm.Get_rank()
kept = {name: meta for name, meta in sim.state.var_meta.items()
        if meta.write_to_restart and meta.active}


def write(number):
    folder = f"{args.out}/step-{number:04}"
    os.makedirs(folder, exist_ok=True)
    with netCDF4.Dataset(f"{folder}/rank-{rank:02}.nc", "w") as file:
        for name, meta in kept.items():
            value = getattr(vs, name)
            dims = meta.dims or ()
            for dim, size in zip(dims, getattr(value, "shape", ())):
                if dim not in file.dimensions:
                    file.createDimension(dim, size)
            made = file.createVariable(name, getattr(value, "dtype", "i4"), dims, **packed)
            made.units = meta.units
            made[...] = value


def restart(folder):
    with netCDF4.Dataset(f"{folder}/rank-{rank:02}.nc") as file, vs.unlock():
        file.set_auto_mask(False)
        for name in kept:
            setattr(vs, name, file[name][...])


first = 0
if args.restart:
    first = int(re.search(r"(\d+)/*$", args.restart)[1]) + 1
    restart(args.restart)
for number in range(first, args.steps):
    for _ in range(args.every if number > 0 else 30):
        sim.step(sim.state)
    write(number)
    if rank == 0:
        print("step", number, "day", float(vs.time) / 86400, flush=True)
