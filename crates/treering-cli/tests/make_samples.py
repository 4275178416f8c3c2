"""Writes the files that examples of the book use: monday.h5, tuesday.h5, week.h5, mixed.npz.

Usage: make_samples.py FOLDER
"""

import sys
from pathlib import Path

import h5py
import numpy as np

LAND = -999.0


def day(path, name):
    """A small HDF5 file; that of tuesday differs in ways that examples show."""
    tuesday = name == "tuesday"
    rows, columns = np.mgrid[0:12, 0:16]
    with h5py.File(path / f"{name}.h5", "w", libver="latest") as file:
        file.attrs["model"] = "ocean 3.2" if tuesday else "ocean 3.1"
        ocean = file.create_group("ocean")

        salt = (34 + np.sin(rows / 3) + np.cos(columns / 5)).astype("f4")
        salt[:3, :4] = LAND
        salt[0, 15] = 41.9  # the largest valid value: rounding must not carry it beyond
        if tuesday:
            salt[5, 7] += 0.5
            salt[8, 2] += 0.25
        field = ocean.create_dataset("salt", data=salt)
        field.attrs["units"] = "g/kg"
        field.attrs["valid_range"] = np.array([0, 41.9], "f4")

        # The same temperatures, packed in two ways.
        scale = 0.005 if tuesday else 0.01
        packed = np.round((rows - columns / 2) / scale).astype("i2")
        field = ocean.create_dataset("temperature", data=packed, chunks=(4, 16), shuffle=True, compression="gzip")
        field.attrs["scale_factor"], field.attrs["add_offset"] = scale, 10.0
        field.attrs["units"] = "degC"

        wind = np.round(np.hypot(rows - 6, columns - 8), 1).astype("f4")
        ocean.create_dataset("wind", data=wind, chunks=(3, 16) if tuesday else (12, 4), compression="lzf")
        ocean.create_dataset("depth", data=100 + rows * 0.5, dtype="f8" if tuesday else "f4")
        ocean.create_dataset("count", data=np.arange(12, dtype="i4") * 10 + (np.arange(12) == 4) * tuesday)

        kinds = np.dtype([("x", "f8"), ("id", "i4"), ("kind", "S8")])
        floats = np.array([(0.5, 1, b"drifter"), (1.5, 2, b"glider")], kinds)
        file.create_dataset("floats", data=floats)
        file["newest"] = h5py.SoftLink("/ocean/salt")


def week(path):
    """A virtual dataset: its values lie in the files of the days."""
    days = ["monday", "tuesday"]
    layout = h5py.VirtualLayout(shape=(len(days), 12, 16), dtype="f4")
    for at, name in enumerate(days):
        layout[at] = h5py.VirtualSource(f"{name}.h5", "ocean/salt", shape=(12, 16))
    with h5py.File(path / "week.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("salt", layout, fillvalue=-1)


def main():
    path = Path(sys.argv[1])
    day(path, "monday")
    day(path, "tuesday")
    week(path)
    log = np.array([{"restarts": 3}], object)
    np.savez(path / "mixed.npz", heat=np.linspace(0, 1, 50), log=log)


main()
