"""Treering beside its peers, on a set of checkpoint files: OUT/step-NNNN/...

Ratio: bytes of the original files over bytes stored. Everything runs on one core; MB/s are those of
the clock, and of the processor's time in brackets. Tools for variables (blosc2, pcodec, fpzip)
get arrays in memory and store nothing of the HDF5 around them, which is in their favour.
"""
import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

import blosc2
import fpzip
import h5py
import numpy as np
from pcodec import ChunkConfig, standalone

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("set", type=pathlib.Path)
args.add_argument("--treering", required=True, type=pathlib.Path)
args.add_argument("--core", type=int, default=0)
args.add_argument("--slow", action="store_true", help="zstd -19 for the lineage, too")
args = args.parse_args()
steps = sorted(path.resolve() for path in args.set.glob("step-*"))
treering = args.treering.resolve()
os.sched_setaffinity(0, {args.core})
temporary = tempfile.TemporaryDirectory(dir=args.set)
tmp = pathlib.Path(temporary.name).resolve()
os.environ.update(BORG_BASE_DIR=f"{tmp}/borg-home", RESTIC_CACHE_DIR=f"{tmp}/restic-home",
                  BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK="yes", RESTIC_PASSWORD="none")


def files(path):
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def size(path):
    return sum(p.stat().st_size for p in files(path))


def clock():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)])


def shell(command):
    """Seconds by the clock, and of the processor."""
    begin = clock()
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], check=True, cwd=tmp,
                   stdout=subprocess.DEVNULL)
    return clock() - begin


def fresh(name):
    shutil.rmtree(tmp / name, ignore_errors=True)
    (tmp / name).mkdir()
    return tmp / name


def same(one, other):
    """Whether two folders have the same files."""
    read = [{p.relative_to(root): p.read_bytes() for p in files(root)} for root in (one, other)]
    return read[0] == read[1]


def row(name, original, stored, *times):
    speeds = "".join(f"{original / 1e6 / wall:12.1f} ({original / 1e6 / cpu:6.1f})"
                     for wall, cpu in times)
    print(f"{name:34}{original / stored:8.3f}{speeds}", flush=True)


def packed_tar(step, name, pack, unpack):
    out = fresh("out")
    put = shell(f"tar cf - -C {step} . | {pack} > packed")
    got = shell(f"{unpack} < packed | tar xf - -C {out}")
    assert same(step, out), name
    row(name, size(step), size(tmp / "packed"), put, got)


def repacked(step):
    out, back = fresh("out"), fresh("back")
    pairs = [(path, f"{n}-{path.name}") for n, path in enumerate(files(step))]
    pack = "h5repack -m 64 -f SHUF -f GZIP=6"  # it fails on arrays of no size
    put = shell("; ".join(f"{pack} {path} out/{new}" for path, new in pairs))
    got = shell("; ".join(f"h5repack -f NONE out/{new} back/{new}" for path, new in pairs))
    shell("; ".join(f"h5diff -q {path} back/{new}" for path, new in pairs))
    row("h5repack, shuffle + gzip 6", size(step), size(out), put, got)


def variables(step):
    found = []
    for path in files(step):
        with h5py.File(path) as file:
            file.visititems(lambda _, item: found.append(item[()])
                            if isinstance(item, h5py.Dataset) and item.size else None)
    return [np.asarray(value) for value in found]


def per_variable(step, arrays, name, takes, pack, unpack):
    """Arrays that a compressor does not take stay as they are."""
    begin = clock()
    stored = [pack(array) if takes(array) else array.tobytes() for array in arrays]
    middle = clock()
    back = [unpack(data, array) if takes(array) else data for data, array in zip(stored, arrays)]
    end = clock()
    assert all(bytes(data) == array.tobytes() for data, array in zip(back, arrays)), name
    row(name, size(step), sum(map(len, stored)), middle - begin, end - middle)


def one_step(step):
    print(f"\nOne checkpoint, {step.name}: {size(step) / 1e6:.1f} MB in {len(files(step))} files\n"
          f"{'':34}{'ratio':>8}{'pack, MB/s':>21}{'unpack, MB/s':>21}")
    packed_tar(step, "tar | zstd -19 --long=27", "zstd -19 --long=27 -T1", "zstd -dc --long=27")
    packed_tar(step, "tar | zstd -3", "zstd -3 -T1", "zstd -dc")
    packed_tar(step, "tar | xz -6", "xz -6 -T1", "xz -dc")
    repacked(step)
    arrays = variables(step)
    blosc2.set_nthreads(1)
    per_variable(step, arrays, "blosc2, shuffle + zstd 5", lambda a: a.nbytes > 64,
                 lambda a: blosc2.compress2(a, codec=blosc2.Codec.ZSTD, clevel=5, nthreads=1,
                                            filters=[blosc2.Filter.SHUFFLE], typesize=a.itemsize),
                 lambda data, a: blosc2.decompress2(data, nthreads=1))
    config = ChunkConfig(compression_level=8)
    per_variable(step, arrays, "pcodec 8", lambda a: a.dtype.str[:2] in ("<i", "<u", "<f"),
                 lambda a: standalone.simple_compress(np.ascontiguousarray(a).ravel(), config),
                 lambda data, a: standalone.simple_decompress(data).tobytes())
    per_variable(step, arrays, "fpzip", lambda a: a.dtype.str in ("<f4", "<f8") and 0 < a.ndim < 5,
                 lambda a: fpzip.compress(a, precision=0, order="C"),
                 lambda data, a: fpzip.decompress(data, order="C").tobytes())
    for aim in ("smallest", "balanced", "fastest"):
        store, out = fresh("store"), fresh("out")
        put = shell(f"{treering} ingest {store}#set@0 {step} --aim {aim}")
        got = shell(f"{treering} export {store}#set@0 --to {out}")
        assert same(step, out), aim
        row(f"treering, {aim}", size(step), size(store), put, got)


def lineage():
    total = sum(map(size, steps))
    print(f"\nA lineage of {len(steps)} checkpoints, {total / 1e6:.1f} MB\n"
          f"{'':34}{'ratio':>8}{'pack, MB/s':>21}")
    tars = []
    for step in steps:
        tars.append(f"{step.name}.tar")
        shell(f"tar cf {step.name}.tar --sort=name --mtime=@0 -C {step} .")

    def chain(name, first, next):
        out = fresh("out")
        times = shell(first.format(new=tars[0]))
        for old, new in zip(tars, tars[1:]):
            times += shell(next.format(old=old, new=new))
        row(name, total, size(out), times)

    for level in (3, 19) if args.slow else (3,):
        zstd = f"zstd -q -{level} -T1 --long=27"
        chain(f"zstd -{level} --patch-from", zstd + " {new} -o out/{new}",
              zstd + " --patch-from={old} {new} -o out/{new} 2>/dev/null")  # it gives advice
    chain("xdelta3 -9", "xdelta3 -e -9 {new} out/{new}", "xdelta3 -e -9 -s {old} {new} out/{new}")

    def folders(name, make, add):
        store = fresh("store")
        shell(make)
        times = sum(shell(add.format(step=step, number=n)) for n, step in enumerate(steps))
        row(name, total, size(store), times)

    folders("borg, zstd 3", "borg init -e none store",
            "borg create -C zstd,3 store::{number} {step}")
    folders("restic, max", "restic -q init -r store --repository-version 2",
            "restic -q -r store backup --compression max {step}")
    for aim in ("smallest", "balanced", "fastest"):
        folders(f"treering, {aim}", "true",
                f"{treering} ingest store#set@{{number}} {{step}} --aim {aim}")


print(f"{args.set.name}: {len(steps)} checkpoints")
one_step(steps[len(steps) // 2])
lineage()
