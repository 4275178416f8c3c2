"""Writes HDF5 files whose chunks went through filters that are only undone: FILES PAIRS, both folders.

FILES gets what make_files.py writes, too: NAME.h5 and NAME.h5.json with the arrays as h5py reads them. PAIRS gets
what make_pairs.py writes: PAIRS/ANSWER/NAME/{a,b}.h5; and pairs of packed numbers in PAIRS/unpacked. With `--seeds FOLDER FILE` the chunks that the fuzzer of filters
begins with are written instead, and a file that holds them.
"""
import json
import os
import struct
import sys

import h5py
import hdf5plugin
import netCDF4
import numpy as np

rng = np.random.default_rng(11)
TYPES = "<f4 >f4 <f8 >f8 i1 u1 <i2 >i2 <u2 <i4 >i4 <u4 <i8 >i8 <u8".split()
SHAPES = [((1000,), (300,)), ((45, 38), (16, 16)), ((13, 11, 17), (5, 6, 7)), ((6, 5, 7, 9), (4, 3, 5, 6))]


def code(dtype):
    return dtype.replace("<", "l").replace(">", "b")


def wave(shape, dtype):
    n = int(np.prod(shape))
    values = 50 + np.sin(np.arange(n) / 37.0) * 40 + rng.normal(size=n) / 10
    return values.astype(dtype).reshape(shape)


def noise(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    values = np.frombuffer(rng.bytes(size), dtype).reshape(shape)
    return np.nan_to_num(values) if np.dtype(dtype).kind == "f" else values


def low_level(file, name, dtype, shape, chunk, prepare):
    """A dataset of any type, with filters that h5py has no argument for."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunk)
    prepare(properties)
    kind = dtype if isinstance(dtype, h5py.h5t.TypeID) else h5py.h5t.py_create(np.dtype(dtype))
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), properties, lcpl=links)
    return h5py.Dataset(made)


def packed_bits(properties):
    properties.set_filter(5, h5py.h5z.FLAG_OPTIONAL, ())


def lossless():
    """Filters by name, each as arguments of create_dataset."""
    yield "lzf", dict(compression="lzf")
    for block in (8, 32):
        yield f"szip_nn{block}", dict(compression="szip", compression_opts=("nn", block))
        yield f"szip_ec{block}", dict(compression="szip", compression_opts=("ec", block))
    for packer in ("none", "lz4", "zstd"):
        yield f"bitshuffle_{packer}", dict(compression=hdf5plugin.Bitshuffle(cname=packer))
        yield f"bitshuffle_{packer}64", dict(compression=hdf5plugin.Bitshuffle(nelems=64, cname=packer))
    for packer in ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"):
        for shuffle in range(3):
            yield f"blosc_{packer}{shuffle}", dict(compression=hdf5plugin.Blosc(packer, 7, shuffle))
    for packer in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for filter in range(4):
            yield f"blosc2_{packer}{filter}", dict(compression=hdf5plugin.Blosc2(packer, 7, filter))
    yield "blosc0", dict(compression=hdf5plugin.Blosc("lz4", 0, 1))
    yield "blosc2_0", dict(compression=hdf5plugin.Blosc2("lz4", 0, 1))
    yield "lz4", dict(compression=hdf5plugin.LZ4())
    yield "lz4_blocks", dict(compression=hdf5plugin.LZ4(nbytes=500))
    yield "zstd", dict(compression=hdf5plugin.Zstd())
    yield "zstd_shuffled", dict(compression=hdf5plugin.Zstd(19), shuffle=True, fletcher32=True)
    yield "bzip2", dict(compression=hdf5plugin.BZip2(1))


def modes():
    """Modes of zfp."""
    yield "rate", dict(rate=9)
    yield "precision", dict(precision=14)
    yield "accuracy", dict(accuracy=0.01)
    yield "reversible", dict(reversible=True)
    yield "expert", dict(minbits=33, maxbits=900, maxprec=40, minexp=-20)


def everything(file):
    for turn, (name, arguments) in enumerate(lossless()):
        # A third of the types for each filter, so that filters of a kind have all of them.
        for number, dtype in list(enumerate(TYPES))[turn % 3 :: 3]:
            shape, chunk = SHAPES[(turn + number // 3) % 3]
            make = noise if (turn + number) % 7 == 6 else wave
            file.create_dataset(f"{name}/{code(dtype)}", data=make(shape, dtype), chunks=chunk, **arguments)
        file.create_dataset(f"{name}/zeros", shape=(60, 70), dtype="f8", chunks=(30, 20), **arguments)[...] = 0


def large(file):
    """Chunks of many blocks."""
    for name, arguments in lossless():
        if name.startswith(("blosc", "bitshuffle", "lz4", "szip_nn32")) and "hc" not in name:
            file.create_dataset(name, data=wave((150, 210), "f4"), chunks=(150, 170), **arguments)
    file.create_dataset("wide", data=wave((4, 20, 30, 50), "f8"), chunks=(3, 20, 30, 40),
                        compression=hdf5plugin.Blosc2("zstd", 5, 2))


def zfp(file):
    for mode, arguments in modes():
        for dtype in ("<f4", "<f8", "<i4", "<i8"):
            if mode == "accuracy" and "i" in dtype:
                continue
            for shape, chunk in SHAPES:
                name = f"{mode}/{code(dtype)}_{len(shape)}"
                file.create_dataset(name, data=wave(shape, dtype) * 10, chunks=chunk,
                                    compression=hdf5plugin.Zfp(**arguments))
    odd = wave((40, 40), "f4")
    odd[3, 5], odd[17, 2], odd[30:, :] = np.nan, -np.inf, 0
    file.create_dataset("odd", data=odd, chunks=(20, 20), compression=hdf5plugin.Zfp(reversible=True))
    for dtype, exponent in (("f4", -40), ("f4", 35), ("f8", -310), ("f8", 300)):
        for mode, arguments in (("rate", dict(rate=16)), ("exact", dict(reversible=True))):
            values = wave((40, 40), "f8") * 10.0**exponent
            file.create_dataset(f"{mode}_{dtype}_{exponent}", data=values.astype(dtype), chunks=(20, 20),
                                compression=hdf5plugin.Zfp(**arguments))


def scaled(file):
    for number, dtype in enumerate(TYPES):
        shape, chunk = SHAPES[number % 3]
        kind = np.dtype(dtype).kind
        for filled in (None, 9):
            for scale in (-1, 0, 4) if kind == "f" else (0, 7, 8 * np.dtype(dtype).itemsize):
                def prepare(properties):
                    way = h5py.h5z.SO_FLOAT_DSCALE if kind == "f" else h5py.h5z.SO_INT
                    # Digits before the point can only be asked for in this way.
                    properties.set_filter(6, h5py.h5z.FLAG_OPTIONAL, (way, scale % 2**32))
                    if filled:
                        properties.set_fill_value(np.array(filled, dtype))

                data = wave(shape, dtype)
                data.flat[5:90] = filled or 0
                low_level(file, f"{code(dtype)}_{scale}_{filled}", dtype, shape, chunk, prepare)[...] = data
        # All bits are needed.
        file.create_dataset(f"{code(dtype)}_noise", data=noise(shape, dtype), chunks=chunk, scaleoffset=0)
        file.create_dataset(f"{code(dtype)}_same", data=np.full(shape, 7, dtype), chunks=chunk, scaleoffset=0)
        file.create_dataset(f"{code(dtype)}_packed", data=wave(shape, dtype), chunks=chunk, scaleoffset=0,
                            compression="gzip")


def nbit(file):
    for number, dtype in enumerate(TYPES):
        shape, chunk = SHAPES[number % 3]
        low_level(file, f"whole/{code(dtype)}", dtype, shape, chunk, packed_bits)[...] = wave(shape, dtype)


def nbit_bytes(file):
    """Types that use some of their bits: (name, values); the bytes are what a filter must give."""
    for order in (h5py.h5t.STD_I32LE, h5py.h5t.STD_I32BE, h5py.h5t.STD_U16LE, h5py.h5t.STD_U16BE):
        kind = order.copy()
        kind.set_precision(8 * kind.get_size() - 5)
        kind.set_offset(3)
        name = f"bytes_{kind.get_size()}_{kind.get_order()}"
        yield low_level(file, name, kind, (50, 30), (20, 20), packed_bits), wave((50, 30), "u2")
    record = np.dtype([("a", "<i4"), ("t", "S3"), ("b", ">u2", (2, 3)), ("c", "<f8")])
    kind = h5py.h5t.py_create(record)
    small = h5py.h5t.STD_I32LE.copy()
    small.set_precision(25)
    packed = h5py.h5t.create(h5py.h5t.COMPOUND, kind.get_size())
    for index in range(kind.get_nmembers()):
        member = small if index == 0 else kind.get_member_type(index)
        packed.insert(kind.get_member_name(index), kind.get_member_offset(index), member)
    values = np.zeros((70,), record)
    values["a"], values["t"] = np.arange(70), [f"t{i}" for i in range(70)]
    values["b"], values["c"] = wave((70, 2, 3), "u2"), wave((70,), "f8")
    yield low_level(file, "bytes_record", packed, (70,), (30,), packed_bits), values


def masked(file):
    """Chunks of which some left a filter out."""
    data = wave((64, 32), "<f4")
    arguments = dict(shape=data.shape, dtype="<f4", chunks=(16, 32), shuffle=True)
    for name, compression in (("zstd", hdf5plugin.Zstd()), ("blosc", hdf5plugin.Blosc()), ("lz4", hdf5plugin.LZ4()),
                              ("bzip2", hdf5plugin.BZip2()), ("lzf", "lzf"), ("blosc2", hdf5plugin.Blosc2())):
        made = file.create_dataset(name, compression=compression, **arguments)
        made[...] = data
        chunk = data[16:32]
        made.id.write_direct_chunk((16, 0), chunk.tobytes(), filter_mask=3)
        shuffled = chunk.view("u1").reshape(-1, 4).T.tobytes()
        made.id.write_direct_chunk((32, 0), shuffled, filter_mask=2)
    for name, options in (("szip", dict(compression="szip")), ("scaled", dict(scaleoffset=2)),
                          ("bitshuffle", dict(compression=hdf5plugin.Bitshuffle())),
                          ("zfp", dict(compression=hdf5plugin.Zfp(rate=12)))):
        made = file.create_dataset(name, shape=data.shape, dtype="<f4", chunks=(16, 32), **options)
        made[...] = data
        made.id.write_direct_chunk((16, 0), data[16:32].tobytes(), filter_mask=1)


def rounded(file):
    """Filters that do nothing when values are read, and need not be installed for it."""
    for number in (32022, 32023):
        made = low_level(file, f"rounded_{number}", "<f4", (40,), (40,),
                         lambda properties: properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (3, 4)))
        made.id.write_direct_chunk((0,), np.arange(40, dtype="<f4").tobytes())


def expect(path, arrays):
    listed = []
    for number, (name, values) in enumerate(sorted(arrays.items())):
        raw = f"{os.path.basename(path)}.{number}.raw"
        values.astype(values.dtype.newbyteorder("<")).tofile(os.path.join(os.path.dirname(path), raw))
        kind = "bytes" if name.startswith("bytes_") else values.dtype.newbyteorder("<").str[1:]
        listed.append({"name": name, "dtype": kind, "shape": list(values.shape), "raw": raw})
    with open(path + ".json", "w") as out:
        json.dump({"format": "hdf5", "arrays": listed}, out)


def write(folder, name, make, arrays=None, **options):
    path = os.path.join(folder, name)
    with h5py.File(path, "w", **options) as file:
        made = make(file)
        arrays = arrays if made is None else made
    found = dict(arrays or {})
    if arrays is None:
        with h5py.File(path) as file:
            file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    expect(path, found)


def as_bytes(file):
    """The content of nbit_bytes, as bytes of the type in the file."""
    found = {}
    for made, values in nbit_bytes(file):
        made[...] = values
        kind = made.id.get_type()
        raw = np.empty(values.shape + (kind.get_size(),), "u1")
        # The filter leaves bits that the type does not use at zero.
        made.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=kind)
        found[made.name[1:]] = raw
    return found


def pairs(folder):
    values = wave((40, 50), "f8")
    far = values.copy()
    far[37, 41] += 1
    whole = wave((40, 50), "i4")
    other = whole.copy()
    other[39, 49] += 1
    near = values + 1e-5

    def make(answer, name, *arrays, cut=False, **arguments):
        for side, data in zip("ab", arrays):
            where = os.path.join(folder, answer, name)
            os.makedirs(where, exist_ok=True)
            with h5py.File(os.path.join(where, side + ".h5"), "w") as file:
                made = file.create_dataset("x", data=data, chunks=(16, 16), **arguments)
                if cut and side == "b":
                    mask, chunk = made.id.read_direct_chunk((16, 16))
                    made.id.write_direct_chunk((16, 16), chunk[: len(chunk) // 2])
                file["y"] = [1.0, 2.0]

    for name, arguments in lossless():
        if name in ("lzf", "szip_nn32", "bitshuffle_lz4", "bitshuffle_zstd", "blosc_blosclz1", "blosc_lz42", "blosc_zlib0",
                    "blosc_zstd1", "blosc2_lz41", "blosc2_zstd2", "lz4", "zstd", "bzip2"):
            make("different", name + "-value", values, far, **arguments)
            make("different", name + "-integer", whole, other, **arguments)
            make("equal", name + "-near", values, near, **arguments)
            make("unknown", name + "-cut", values, values, cut=True, **arguments)
    for mode in (dict(rate=40), dict(accuracy=1e-6), dict(reversible=True)):
        name = "zfp-" + next(iter(mode))
        make("different", name, values, far, compression=hdf5plugin.Zfp(**mode))
        make("equal", name + "-near", values, near, compression=hdf5plugin.Zfp(**mode))
        make("unknown", name + "-cut", values, values, cut=True, compression=hdf5plugin.Zfp(**mode))
    make("different", "scaled", values, far, scaleoffset=6)
    make("equal", "scaled-near", values, near, scaleoffset=6)
    make("unknown", "scaled-cut", values, values, cut=True, scaleoffset=6)
    # Types that use some of their bits: one value of one array differs, or none.
    for changed in (None, 0, 1, 2, 3, 4):
        where = os.path.join(folder, "equal" if changed is None else "different", f"some-bits-{changed}")
        os.makedirs(where, exist_ok=True)
        same = []
        # Files of equal content whose bytes differ.
        for side, libver in (("a", "earliest"), ("b", "latest")):
            with h5py.File(os.path.join(where, side + ".h5"), "w", libver=libver) as file:
                for number, (made, kept) in enumerate(nbit_bytes(file)):
                    same.append(kept)
                    kept = same[number].copy()
                    if side == "b" and number == changed:
                        (kept["b"] if kept.dtype.names else kept)[-1, -1] ^= 1
                    made[...] = kept
    # One array, packed by different filters.
    where = os.path.join(folder, "equal", "other-filter")
    os.makedirs(where, exist_ok=True)
    for side, arguments in (("a", dict(compression=hdf5plugin.Blosc2())), ("b", dict(compression="szip"))):
        with h5py.File(os.path.join(where, side + ".h5"), "w") as file:
            file.create_dataset("x", data=values, chunks=(16, 16), **arguments)


def unpacked(folder):
    """Packed variables whose values are the same within 0.6, or not: FOLDER/unpacked/ANSWER/NAME/{a,b}.nc."""
    numbers = np.arange(-300, 300, dtype="i2").reshape(20, 30)
    values = numbers * 0.5 + 273.0
    values[3, 4] = np.nan
    moved = values.copy()
    moved[7, 8] += 1.0

    def write(path, values, scale, offset, kind, options):
        packed = np.where(np.isnan(values), -999, np.round((values - offset) / scale)).astype(kind)
        with netCDF4.Dataset(path, "w", **options) as file:
            file.createDimension("y", 20)
            file.createDimension("x", 30)
            file.createVariable("plain", "f4", ("x",))[:] = np.arange(30)
            made = file.createVariable("t", kind, ("y", "x"), fill_value=-999)
            made.set_auto_maskandscale(False)
            made.scale_factor, made.add_offset = scale, np.float32(offset)
            made[:] = packed

    for name, options in (("hdf5", dict(format="NETCDF4")), ("classic", dict(format="NETCDF3_CLASSIC"))):
        for answer, other in (("equal", values + 0.5), ("different", moved)):
            for way, packing in (("same", (0.5, 273.0, "i2")), ("other", (0.25, 100.0, "i4"))):
                where = os.path.join(folder, "unpacked", answer, f"{name}-{way}")
                os.makedirs(where, exist_ok=True)
                write(os.path.join(where, "a.nc"), values, 0.5, 273.0, "i2", options)
                write(os.path.join(where, "b.nc"), other, *packing, options)


def seeds(folder, path):
    """Chunks of (i * i) % 97, with what is needed to decode them."""
    os.makedirs(folder, exist_ok=True)
    codes = "i1 u1 i2 u2 i4 u4 i8 u8 f4 f8".split()

    def made():
        kept = ("lzf", "szip_nn8", "szip_ec32", "bitshuffle_none", "bitshuffle_lz4", "bitshuffle_zstd64", "blosc_blosclz1",
                "blosc_lz42", "blosc_snappy0", "blosc_zlib1", "blosc_zstd2", "blosc2_blosclz1", "blosc2_lz43",
                "blosc2_zstd2", "lz4_blocks", "zstd_shuffled", "bzip2")
        for number, (name, arguments) in enumerate((n, a) for n, a in lossless() if n in kept):
            yield name, TYPES[(7 * number + 3) % len(TYPES)], arguments
        yield "szip_wide", "<i2", dict(compression="szip", compression_opts=("nn", 16))
        yield "scaled_integer", ">i4", dict(scaleoffset=0)
        yield "scaled_filled", "<i2", dict(scaleoffset=0, fillvalue=9)
        yield "scaled_float", "<f4", dict(scaleoffset=1)
        yield "nbit", "<i4", None
        yield "lzo", "<f4", "golden/lzo.h5"
        for mode, arguments in modes():
            yield "zfp_" + mode, "<f8" if mode in ("rate", "expert") else "<f4", dict(compression=hdf5plugin.Zfp(**arguments))

    with h5py.File(path, "w", libver="latest") as file:
        for name, dtype, arguments in made():
            shape = (8, 5, 6) if name in ("zfp_precision", "zfp_reversible", "blosc2_zstd2") else (240,)
            data = (np.arange(240) ** 2 % 97).astype(dtype).reshape(shape)
            if arguments is None:
                kind = h5py.h5t.STD_I32LE.copy()
                kind.set_precision(25)
                low_level(file, name, kind, shape, shape, packed_bits)[...] = data
            elif isinstance(arguments, str):
                # Of a file with a filter that h5py does not know: the chunk is copied.
                with h5py.File(os.path.join(os.path.dirname(__file__), arguments)) as other:
                    kept = other["small"].id
                    _, chunk = kept.read_direct_chunk((0,))
                    number, _, values, _ = kept.get_create_plist().get_filter(0)
                    prepare = lambda properties: properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
                    low_level(file, name, dtype, shape, shape, prepare).id.write_direct_chunk((0,), chunk)
            else:
                file.create_dataset(name, data=data, chunks=shape, **arguments)
            made_set = file[name].id
            pipeline = made_set.get_create_plist()
            mask, chunk = made_set.read_direct_chunk((0,) * len(shape))
            out = struct.pack("<BBII", codes.index(dtype.strip("<>")), dtype[0] == ">", data.nbytes, mask)
            out += struct.pack("<B", pipeline.get_nfilters())
            for index in range(pipeline.get_nfilters()):
                number, _, parameters, _ = pipeline.get_filter(index)
                out += struct.pack("<HB", number, len(parameters)) + struct.pack(f"<{len(parameters)}I", *parameters)
            with open(os.path.join(folder, name), "wb") as seed:
                seed.write(out + chunk)


if sys.argv[1] == "--seeds":
    seeds(*sys.argv[2:])
    sys.exit()
files, folder = sys.argv[1:]
os.makedirs(files, exist_ok=True)
# Names that tell the test that chunks are kept as they are.
write(files, "odd_packed.h5", everything)
write(files, "odd_scaled.h5", scaled, libver="latest")
write(files, "odd_large.h5", large)
write(files, "odd_zfp.h5", zfp)
write(files, "odd_bits.h5", nbit)
write(files, "odd_bits_of_types.h5", as_bytes)
write(files, "odd_masked.h5", masked)
write(files, "odd_rounded.h5", rounded,
      {f"rounded_{number}": np.arange(40, dtype="<f4") for number in (32022, 32023)})
pairs(folder)
unpacked(folder)
print("files and pairs of filters")
