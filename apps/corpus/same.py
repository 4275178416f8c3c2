"""Whether the files of two folders hold the same arrays, bit for bit: same.py ONE OTHER"""
import pathlib
import sys

import h5py


def arrays(folder):
    found = {}
    for path in sorted(folder.rglob("*.*")):
        with h5py.File(path) as file:
            file.visititems(lambda name, item: found.update({
                f"{path.relative_to(folder)}/{name}": (item.dtype, item.shape, item[()].tobytes())})
                if isinstance(item, h5py.Dataset) else None)
    return found


one, other = map(arrays, map(pathlib.Path, sys.argv[1:3]))
assert one and one.keys() == other.keys()
for name in one:
    assert one[name] == other[name], f"{name} differs"
print(f"{len(one)} arrays are the same, {sum(len(a[2]) for a in one.values()) / 1e6:.1f} MB")
