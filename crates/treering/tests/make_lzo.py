"""Writes golden/lzo.h5: arrays that PyTables packed with LZO, which neither h5py nor its plugins know.

Needs a PyTables with LZO, as Debian's python3-tables is; its wheels have none. The test computes the same values.
"""
import sys

import numpy as np
import tables


def noise(count, salt):
    """Bytes without repeats."""
    at = np.arange(count, dtype="u8") + np.uint64(salt)
    return ((at * at * np.uint64(2654435761) + at) >> np.uint64(13)).astype("u1")


far = np.concatenate([noise(20_000, 0), np.zeros(9_000, "u1"), noise(20_000, 0), noise(3_000, 7), noise(3_000, 7)])
index = np.arange(3_000)
arrays = {
    "far": (far, far.size),  # repeats beyond 16 and 32 KiB, and long runs
    "few": ((noise(6_000, 3) % 3).astype("u1"), 2_500),  # short repeats near by
    "slow": ((index // 7).astype(">f8"), 700),
    "line": (index.astype("<i4") * 3, 1_000),
    "noise": (noise(2_000, 5), 600),  # chunks that do not shrink are not packed
    "small": ((np.arange(240) ** 2 % 97).astype("<f4"), 240),
}
with tables.open_file(sys.argv[1], "w") as file:
    for name, (data, chunk) in arrays.items():
        for shuffle in (False, True):
            filters = tables.Filters(complevel=5, complib="lzo", shuffle=shuffle, fletcher32=shuffle)
            file.create_carray("/", name + "_shuffled" * shuffle, obj=data, chunkshape=(chunk,), filters=filters)
