"""Files in chunks that reach far along the slow axis, beside h5py and beside the same values in a chunk for each step.

usage: bench_chunks.py TREERING [--scale N] [--dir DIR]

Comparing is held to the time in which h5py reads both files, ingest and export to their times for a chunk for each
step: at most 2 and 3 times as long, or it ends with 1. Peak memory is that of the process. Files come back byte for
byte, or it ends with 1.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import tempfile
import time

import h5py
import netCDF4
import numpy


COMPARE, BOTH_WAYS = 2.0, 3.0


def judged(ratio, most):
    """The ratio as text, and whether it is within its limit."""
    within = ratio <= most
    return f"{ratio:.2f}" + ("" if within else f" (more than {most})"), within


def field(shape):
    """A smooth field with some noise, which gzip packs a little."""
    random = numpy.random.default_rng(1)
    t, y, x = (numpy.linspace(0, end, n, dtype="f4") for end, n in zip((6, 9, 7), shape))
    t, y, x = t[:, None, None], y[None, :, None], x[None, None, :]
    noise = random.standard_normal(shape, dtype="f4") * numpy.float32(0.01)
    return (numpy.sin(t + y) * numpy.cos(x - t) + noise).astype("f4")


def write(path, values, chunks):
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=chunks, compression="gzip", compression_opts=4)


def write_netcdf(path, values, chunks):
    with netCDF4.Dataset(path, "w") as file:
        for name, size in zip("tyx", values.shape):
            file.createDimension(name, size)
        variable = file.createVariable("v", "f4", tuple("tyx"), zlib=True, complevel=4, chunksizes=chunks)
        variable[:] = values
        return variable.chunking()


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def read(*paths):
    def all_of():
        for path in paths:
            with h5py.File(path) as file:
                file["v"][...]

    return timed(all_of)


def treering(program, *arguments, code=0):
    """Seconds, and the most memory in MiB."""
    start = time.perf_counter()
    child = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    trouble = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != code:
        raise SystemExit(f"treering {' '.join(arguments)} ended with {child.returncode}: {trouble}")
    return seconds, usage.ru_maxrss / 1024


def both_ways(program, folder, path):
    """Ingest and export of a file, which must come back."""
    store, back = os.path.join(folder, "store"), os.path.join(folder, "back")
    ingest = treering(program, "ingest", f"{store}#r@0", path)
    export = treering(program, "export", f"{store}#r@0", "--to", back)
    if not filecmp.cmp(path, os.path.join(back, os.path.basename(path)), shallow=False):
        raise SystemExit(f"{path} came back different")
    shutil.rmtree(store)
    shutil.rmtree(back)
    return ingest, export


def study(program, folder, name, shape, writer, chunks):
    values = field(shape)
    steps, far, other = (os.path.join(folder, f"{kind}.h5") for kind in ("steps", "far", "other"))
    writer(steps, values, (1, *shape[1:]))
    used = writer(far, values, chunks) or chunks
    changed = values.copy()
    changed[shape[0] // 2, 3, 5] += 1
    writer(other, changed, chunks)
    size = values.nbytes / 1e6
    del values, changed
    good = True
    print(f"{name}: {size:.0f} MB, {shape} in chunks of {tuple(used)}")
    for label, pair, code in (("the same chunks", (far, other), 1), ("a chunk for each step", (far, steps), 0)):
        ours, memory = treering(program, "compare", *pair, code=code)
        limit = read(*pair)
        ratio, within = judged(ours / limit, COMPARE)
        good &= within
        print(f"  compare with {label}: {ours:.2f} s, {ratio} of h5py reading both ({limit:.2f} s); {memory:.0f} MiB")
    plain = both_ways(program, folder, steps)
    ours = both_ways(program, folder, far)
    for what, (seconds, memory), (limit, _) in zip(("ingest", "export"), ours, plain):
        ratio, within = judged(seconds / limit, BOTH_WAYS)
        good &= within
        print(f"  {what}: {seconds:.2f} s, {ratio} of a chunk for each step ({limit:.2f} s); {memory:.0f} MiB")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--scale", type=int, default=1, help="divides the last two axes")
    parser.add_argument("--dir", help="where to make the files")
    options = parser.parse_args()

    def scaled(*shape):
        return (shape[0], *(n // options.scale for n in shape[1:]))

    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        studies = [
            ("small chunks", scaled(200, 420, 420), write, (100, 10, 10)),
            ("all steps in a chunk", scaled(300, 600, 600), write, (300, 10, 10)),
            ("netCDF's default", scaled(60, 721, 1440), write_netcdf, None),
        ]
        good = [study(options.program, folder, *one) for one in studies]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
