"""Writes files with the libraries that people use: HDF5, netCDF, NumPy; a folder is given.

Each file stands for something that libraries do differently: versions, layouts, filters, types,
edges, what was never written. Beside each goes NAME.json with the arrays that must be found in it:
path, type and shape, and the values as a raw file.
"""
import io
import json
import os
import sys
import zipfile
import zlib

import h5py
import netCDF4
import numpy as np

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
rng = np.random.default_rng(7)


def wave(shape, dtype):
    n = int(np.prod(shape))
    values = np.sin(np.arange(n) / 37.0) * 1000 + rng.normal(size=n)
    return values.astype(dtype).reshape(shape)


def path(name):
    return os.path.join(folder, name)


def expect(name, arrays, format):
    """The content that must be found; `arrays` is {path: values}."""
    listed = []
    for number, (field, values) in enumerate(sorted(arrays.items())):
        values = np.asarray(values)
        little = values.astype(values.dtype.newbyteorder("<"))
        raw = f"{name}.{number}.raw"
        little.tofile(path(raw))
        listed.append({"name": field, "dtype": values.dtype.newbyteorder("<").str[1:],
                       "shape": list(values.shape), "raw": raw})
    with open(path(name + ".json"), "w") as out:
        json.dump({"format": format, "arrays": listed}, out)


def numbers(file):
    """All datasets of plain numbers, as h5py reads them."""
    found = {}
    seen = set()

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "iufc" and item.shape is not None:
            address = h5py.h5o.get_info(item.id).addr
            if address not in seen:
                seen.add(address)
                found[name] = item[()]

    file.visititems(visit)
    return found


def h5(name, make, check=True, **options):
    with h5py.File(path(name), "w", **options) as file:
        make(file)
    with h5py.File(path(name), "r") as file:
        expect(name, numbers(file) if check else {}, "hdf5")


def types(file):
    for dtype in "<f4 >f4 <f8 >f8 <f2 i1 u1 <i2 >i2 <u4 >u4 <i8 >u8 <c8 <c16".split():
        code = dtype.replace("<", "l").replace(">", "b")
        file[f"types/{code}"] = wave((5, 6, 7), dtype)
        file.create_dataset(f"chunked/{code}", data=wave((5, 6, 7), dtype), chunks=(2, 4, 3),
                            compression="gzip", shuffle=True)
    file["scalar"] = 3.5
    file["empty"] = np.zeros((0, 4))
    file.create_dataset("chunked/empty", shape=(0, 4), maxshape=(None, 4), dtype="f4")
    file["null"] = h5py.Empty("f4")


def filters(file):
    data = wave((40, 50, 30), "f4")
    for level in range(10):
        file.create_dataset(f"gzip{level}", data=data, chunks=(16, 16, 16), compression="gzip",
                            compression_opts=level)
    file.create_dataset("shuffled", data=data, chunks=(7, 50, 30), compression="gzip", shuffle=True)
    file.create_dataset("summed", data=data, chunks=(16, 50, 7), fletcher32=True)
    file.create_dataset("all", data=data, chunks=(11, 13, 30), compression="gzip", shuffle=True,
                        fletcher32=True, compression_opts=9)
    file.create_dataset("lzf", data=data, chunks=(16, 16, 16), compression="lzf", shuffle=True)
    file.create_dataset("noise", data=rng.integers(0, 256, (300, 300), dtype="u1"),
                        chunks=(64, 64), compression="gzip")
    file.create_dataset("plain", data=data, chunks=(16, 16, 16))
    file.create_dataset("wide", data=wave((3, 100000), "f8"), chunks=(1, 3000), compression="gzip")


def reaching_far(file):
    """A row of chunks is larger than the cache of decoded chunks."""
    data = np.zeros((36, 499, 501), "f4")
    data[::5, ::3] = wave((501,), "f4")
    file.create_dataset("far", data=data, chunks=(36, 60, 70), compression="gzip", shuffle=True)


def odd_filters(file):
    for code in ("<i4", ">i2", "<u1", "<i8", "<f4", "<f8", ">f8"):
        digits = 3 if "f" in code else 0
        file.create_dataset(f"scaled_{code[1:]}_{ord(code[0])}", data=wave((50, 50), code) % 200,
                            dtype=code, chunks=(16, 16), scaleoffset=digits)
    file.create_dataset("scaled_fill", data=wave((50, 50), "i4"), chunks=(16, 16), scaleoffset=0,
                        fillvalue=-5)
    file["scaled_fill"][3:7, 2:40] = -5
    file.create_dataset("scaled_same", data=np.full((50, 50), 9), chunks=(16, 16), scaleoffset=0)


def indices(file):
    """As many kinds of chunk indices as there are."""
    data = wave((33, 21), "i4")
    for packed in (None, "gzip"):
        tag = packed or "plain"
        file.create_dataset(f"{tag}/single", data=data, chunks=data.shape, compression=packed)
        file.create_dataset(f"{tag}/fixed", data=data, chunks=(4, 4), compression=packed)
        file.create_dataset(f"{tag}/paged", data=wave((300, 200), "i2"), chunks=(2, 4),
                            compression=packed)
        file.create_dataset(f"{tag}/room", data=data, chunks=(4, 4), maxshape=(64, 40),
                            compression=packed)
        file.create_dataset(f"{tag}/growing", data=data, chunks=(4, 4), maxshape=(None, 21),
                            compression=packed)
        file.create_dataset(f"{tag}/growing2", data=data, chunks=(4, 4), maxshape=(33, None),
                            compression=packed)
        file.create_dataset(f"{tag}/long", data=wave((20000,), "f4"), chunks=(3,), maxshape=(None,),
                            compression=packed)
        file.create_dataset(f"{tag}/both", data=data, chunks=(3, 2), maxshape=(None, None),
                            compression=packed)
        file.create_dataset(f"{tag}/many", data=wave((400, 300), "i2"), chunks=(2, 3),
                            maxshape=(None, None), compression=packed)
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_chunk((4, 4))
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple((33, 21))
    made = h5py.h5d.create(file.id, b"implicit", h5py.h5t.NATIVE_INT32, space, early)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)


def foreign(file):
    """Chunks that were packed by something else than this library's zlib, or not at all."""
    data = wave((64, 64), "f4")

    def pack(chunk, strategy):
        packer = zlib.compressobj(6, zlib.DEFLATED, 15, 8, strategy)
        return packer.compress(chunk.tobytes()) + packer.flush()

    for name, odd in (("odd", range(16)), ("mixed", (5,))):
        made = file.create_dataset(name, shape=data.shape, dtype="f4", chunks=(16, 16),
                                   compression="gzip", compression_opts=6)
        for number in range(16):
            row, column = number // 4 * 16, number % 4 * 16
            chunk = data[row:row + 16, column:column + 16]
            if number == 9:
                made.id.write_direct_chunk((row, column), chunk.tobytes(), filter_mask=1)
            else:
                strategy = zlib.Z_HUFFMAN_ONLY if number in odd else zlib.Z_DEFAULT_STRATEGY
                made.id.write_direct_chunk((row, column), pack(chunk, strategy))
    made = file.create_dataset("padded", shape=(30,), dtype="i4", chunks=(16,), fillvalue=3)
    made.id.write_direct_chunk((0,), np.arange(16, dtype="i4").tobytes())
    made.id.write_direct_chunk((16,), np.arange(16, dtype="i4").tobytes())
    file.create_dataset("lzf", data=rng.normal(size=1500000).astype("f4"), chunks=(100000,),
                        compression="lzf")


def holes(file):
    part = file.create_dataset("part", shape=(100, 100), chunks=(10, 10), dtype="f8",
                               fillvalue=-7.25, compression="gzip")
    part[15:38, 20:95] = wave((23, 75), "f8")
    file.create_dataset("never", shape=(50, 4), dtype=">i4", fillvalue=77)
    file.create_dataset("never_chunked", shape=(50, 4), chunks=(7, 3), dtype=">i4", fillvalue=99)
    shrunk = file.create_dataset("shrunk", data=wave((40, 40), "f4"), chunks=(16, 16),
                                 maxshape=(None, None), compression="gzip")
    shrunk.resize((25, 18))
    grown = file.create_dataset("grown", data=wave((20,), ">f4"), chunks=(8,), maxshape=(None,),
                                fillvalue=1.5, shuffle=True)
    grown.resize((77,))


def others(file):
    file["text"] = "words"
    file["texts"] = np.array([b"one", b"two", b"three"], dtype="S7")
    file["lists"] = np.array(["a", "bb", "ccc"], dtype=object)
    record = np.dtype([("x", "<f4"), ("n", "<i2"), ("in", [("y", ">f8"), ("z", "u1", (3,))])])
    file["records"] = np.zeros(20, dtype=record)
    file.create_dataset("records_packed", data=np.zeros(200, dtype=record), chunks=(33,),
                        compression="gzip")
    file["true"] = np.arange(10) % 3 == 0
    colours = h5py.enum_dtype({"red": 0, "green": 1, "blue": 42}, basetype=">i2")
    file.create_dataset("colours", data=np.array([0, 1, 42, 1]), dtype=colours)
    file["opaque"] = np.array([b"\x01\x02\x03"] * 4, dtype="V3")
    file["named"] = np.dtype("<f4")
    file.create_dataset("of_named", data=wave((9,), "f4"), dtype=file["named"])
    group = file.create_group("a/deep/er/group")
    for n in range(40):
        group[f"x{n:02d}"] = wave((n,), "f4")
    refs = file.create_dataset("refs", (3,), dtype=h5py.ref_dtype)
    refs[0] = group.ref
    regions = file.create_dataset("regions", (1,), dtype=h5py.regionref_dtype)
    regions[0] = file["a/deep/er/group/x30"].regionref[3:9]
    file["hard"] = group["x20"]
    file["soft"] = h5py.SoftLink("/a/deep/er/group/x21")
    file["outside"] = h5py.ExternalLink("nowhere.h5", "/x")
    axis = file["a/deep/er/group/x10"]
    axis.make_scale("length")
    file["a/deep/er/group/x10"].attrs["note"] = "x" * 3000
    grid = file.create_dataset("on_axis", data=wave((10,), "f4"))
    grid.dims[0].attach_scale(axis)
    file.attrs["title"] = "everything else"
    for n in range(30):
        file.attrs[f"n{n}"] = n
    outside = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    outside.set_external(b"external.bin", 0, 32)
    h5py.h5d.create(file.id, b"external", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((8,)),
                    outside)
    layout = h5py.VirtualLayout(shape=(9,), dtype="f4")
    layout[:] = h5py.VirtualSource(file["of_named"])
    if file.libver[1] != "v108":
        file.create_virtual_dataset("virtual", layout)
    big = file.create_group("big")
    for n in range(2000):
        big.create_group(f"group number {n}")
    big["last"] = wave((4, 4), "f8")
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    made = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_DOUBLE,
                           h5py.h5s.create_simple((6,)), compact)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, wave((6,), "f8"))
    file.create_dataset("matrices", data=np.zeros((5,), dtype=np.dtype(("<f4", (3, 3)))))


for low in ("earliest", "v108", "v110", "latest"):
    libver = low if low in ("earliest", "latest") else (low, low)
    tag = low
    h5(f"types-{tag}.h5", types, libver=libver)
    h5(f"filters-{tag}.h5", filters, libver=libver)
    h5(f"odd_filters-{tag}.h5", odd_filters, libver=libver)
    h5(f"indices-{tag}.h5", indices, libver=libver)
    h5(f"holes-{tag}.h5", holes, libver=libver)
    h5(f"others-{tag}.h5", others, libver=libver, check=False)
h5("reaching_far.h5", reaching_far)
h5("foreign.h5", foreign)
h5("user_block.h5", types, userblock_size=2048)
h5("ordered.h5", others, track_order=True, check=False)
h5("pages.h5", filters, fs_strategy="page", fs_page_size=4096, libver="latest")


def nc(name, kind, make, format):
    with netCDF4.Dataset(path(name), "w", format=kind) as file:
        make(file)
    found = {}

    def visit(group, prefix):
        for key, variable in group.variables.items():
            if variable.dtype is str or variable.dtype.kind not in "iuf":
                continue
            variable.set_auto_maskandscale(False)
            found[prefix + key] = np.asarray(variable[...])
        for key, below in group.groups.items():
            visit(below, prefix + key + "/")

    with netCDF4.Dataset(path(name)) as file:
        visit(file, "")
    expect(name, found, format)


def classic(file, extra=()):
    file.createDimension("time", None)
    file.createDimension("x", 7)
    file.createDimension("y", 5)
    file.title = "records"
    for code in ("i1", "i2", "i4", "f4", "f8") + tuple(extra):
        still = file.createVariable(f"still_{code}", code, ("y", "x"))
        still[:] = wave((5, 7), code)
        still.units = "m"
        moving = file.createVariable(f"moving_{code}", code, ("time", "x"))
        moving[:] = wave((11, 7), code)
    text = file.createVariable("text", "S1", ("time", "x"))
    text[:] = np.full((11, 7), b"q", dtype="S1")
    file.createVariable("scalar", "f8", ())[...] = 2.5
    file.createVariable("unset", "f4", ("y",))


def one_record(file):
    file.createDimension("time", None)
    file.createDimension("x", 3)
    file.createVariable("only", "i2", ("time", "x"))[:] = wave((9, 3), "i2")


def modern(file):
    classic(file, ("u1", "u2", "u4", "i8", "u8"))
    packed = file.createVariable("packed", "f4", ("time", "y", "x"), zlib=True, complevel=4,
                                 shuffle=True, fletcher32=True, chunksizes=(2, 3, 7))
    packed[:] = wave((11, 5, 7), "f4")
    inner = file.createGroup("inner/most")
    inner.createDimension("z", 100)
    for n in range(12):
        inner.createVariable(f"v{n}", "f8", ("z",), zlib=n % 2 == 0)[:] = wave((100,), "f8")
    file.createVariable("words", str, ("x",))[0] = "word"


nc("classic.nc", "NETCDF3_CLASSIC", classic, "netcdf")
nc("offset64.nc", "NETCDF3_64BIT_OFFSET", classic, "netcdf")
nc("data64.nc", "NETCDF3_64BIT_DATA", lambda f: classic(f, ("u1", "u2", "u4", "i8", "u8")), "netcdf")
nc("one_record.nc", "NETCDF3_CLASSIC", one_record, "netcdf")
nc("modern.nc", "NETCDF4", modern, "hdf5")
nc("modern_classic.nc", "NETCDF4_CLASSIC", classic, "hdf5")

arrays = {"a": wave((30, 40), "f8"), "b": wave((100,), ">f4"), "empty": np.zeros((0, 3)),
          "scalar": np.float32(4.5)}
np.savez(path("stored.npz"), **arrays)
np.savez_compressed(path("packed.npz"), **arrays, large=wave((500000,), "f4"))
expect("stored.npz", arrays, "npz")
expect("packed.npz", {**arrays, "large": np.load(path("packed.npz"))["large"]}, "npz")
np.save(path("plain.npy"), arrays["a"])
expect("plain.npy", {"plain": arrays["a"]}, "npy")
np.save(path("swapped.npy"), arrays["b"])
expect("swapped.npy", {"swapped": arrays["b"]}, "npy")
with zipfile.ZipFile(path("levels.npz"), "w") as archive:
    for level in range(1, 10):
        data = io.BytesIO()
        np.save(data, wave((3000,), "f8"))
        archive.writestr(f"level{level}.npy", data.getvalue(), zipfile.ZIP_DEFLATED, level)
with np.load(path("levels.npz")) as levels:
    expect("levels.npz", dict(levels), "npz")

tensors = {"w": wave((16, 8), "f4"), "h": wave((5,), "f2"), "n": wave((3, 3), "i8")}
head, blob = {"__metadata__": {"made": "by hand"}}, b""
for name, tensor in tensors.items():
    code = {"f4": "F32", "f2": "F16", "i8": "I64"}[tensor.dtype.str[1:]]
    head[name] = {"dtype": code, "shape": list(tensor.shape),
                  "data_offsets": [len(blob), len(blob) + tensor.nbytes]}
    blob += tensor.tobytes()
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
with open(path("small.safetensors"), "wb") as out:
    out.write(len(text).to_bytes(8, "little") + text + blob)
expect("small.safetensors", tensors, "safetensors")
# An array `t` with values that stand for none, -9999 as fill value and 1e20 by an attribute.
os.makedirs(path("masked"), exist_ok=True)


def masked(dtype):
    values = wave((60, 50), dtype)
    values[::3] = -9999
    values[1::7] = 1e20
    return values


for name, libver, dtype, more in [("earliest.h5", "earliest", "f8", {}),
                                  ("latest.h5", "latest", "f4", {}),
                                  ("chunks.h5", "latest", "f8", {"chunks": (16, 16)}),
                                  ("big.h5", "earliest", ">f4", {})]:
    with h5py.File(path("masked/" + name), "w", libver=libver) as file:
        made = file.create_dataset("t", data=masked(dtype), fillvalue=-9999, **more)
        made.attrs["units"] = "K"
        made.attrs["missing_value"] = np.array([1e20], dtype[-2:])
for name, format in [("classic.nc", "NETCDF3_CLASSIC"), ("modern.nc", "NETCDF4")]:
    with netCDF4.Dataset(path("masked/" + name), "w", format=format) as file:
        file.createDimension("y", 60)
        file.createDimension("x", 50)
        made = file.createVariable("t", "f4", ("y", "x"), fill_value=-9999)
        # More attributes than an object's header has room for.
        for number in range(12):
            made.setncattr(f"note {number}", "a few words")
        made.missing_value = np.float32(1e20)
        made[:] = masked("f4")
# Marks of other types than the array's, and of a type that has a name.
with h5py.File(path("masked/other-types.h5"), "w") as file:
    made = file.create_dataset("t", data=masked("f4"))
    made.attrs["missing_value"] = np.float64(1e20)
    made.attrs["_FillValue"] = np.int32(-9999)
with h5py.File(path("masked/named-type.h5"), "w") as file:
    file["kind"] = np.dtype(">f8")
    made = file.create_dataset("t", data=masked("f8"))
    made.attrs.create("missing_value", [1e20, -9999], dtype=file["kind"])
with netCDF4.Dataset(path("masked/other-types.nc"), "w", format="NETCDF3_CLASSIC") as file:
    file.createDimension("y", 60)
    file.createDimension("x", 50)
    made = file.createVariable("t", "f4", ("y", "x"), fill_value=False)
    made.setncattr("missing_value", np.array([1e20, -9999], "f8"))
    made.set_auto_mask(False)
    made[:] = masked("f4")

print(len([f for f in os.listdir(folder) if f.endswith(".json")]), "files")
