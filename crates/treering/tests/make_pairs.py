"""Pairs of files for tests/contents.rs: FOLDER/ANSWER/NAME/{a,b}.EXTENSION.

The answer is that of a comparison within 1e-3: `equal`, `different`, or `unknown` (never equal). The pairs
are those in which what was not taken apart, or is no array, decides.

FOLDER/reported/NAME has a third file, with the differences as they must be reported. FOLDER/outside/ANSWER/NAME has
arrays whose values lie in other files of the same folder.
"""
import ctypes
import json
import os
import sys
import zipfile
import zlib

import h5py
import netCDF4
import numpy as np

folder = sys.argv[1]
values = np.linspace(0, 1, 20000).reshape(100, 200)
near = values + 1e-5 * np.sin(np.arange(20000)).reshape(100, 200)
far = values.copy()
far[50, 7] += 1.0


def pair(answer, name, write, a, b, extension="h5"):
    where = os.path.join(folder, answer, name)
    os.makedirs(where, exist_ok=True)
    write(os.path.join(where, "a." + extension), a)
    write(os.path.join(where, "b." + extension), b)


def deflated(bytes, strategy):
    coder = zlib.compressobj(9, zlib.DEFLATED, 15, 9, strategy)
    return coder.compress(bytes) + coder.flush()


def foreign_gzip(path, data):
    """Chunks that zlib packs differently at every level."""
    array, strategy = data
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", array.shape, "f8", chunks=(10, 200), compression="gzip")
        for at in range(0, 100, 10):
            x.id.write_direct_chunk((at, 0), deflated(array[at : at + 10].tobytes(), strategy))


huffman, runs = zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE
pair("different", "foreign-gzip", foreign_gzip, (values, huffman), (far, huffman))
pair("equal", "foreign-gzip-within", foreign_gzip, (values, huffman), (near, huffman))
pair("equal", "foreign-gzip-other-packer", foreign_gzip, (values, huffman), (values, runs))


def half_foreign(path, own):
    """One file can be taken apart, the other cannot."""
    if not own:
        return foreign_gzip(path, (values, huffman))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(10, 200), compression="gzip")


pair("equal", "foreign-gzip-on-one-side", half_foreign, True, False)


def large_foreign(path, data):
    """More bytes than a skeleton holds: they become a field."""
    noise = np.random.default_rng(1).random((500, 2000)) + data
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "large"
        x = file.create_dataset("x", noise.shape, "f8", chunks=(50, 2000), compression="gzip")
        for at in range(0, 500, 50):
            x.id.write_direct_chunk((at, 0), deflated(noise[at : at + 50].tobytes(), huffman))


pair("equal", "large-foreign-gzip-within", large_foreign, 0.0, 1e-4)
pair("different", "large-foreign-gzip", large_foreign, 0.0, 1.0)


def reaching_far(path, options):
    """Rows of chunks that do not fit into the cache of decoded chunks: they are compared tile by tile."""
    far, chunks = options
    x = np.zeros((40, 500, 500), "f4")
    x[::7] = np.linspace(0, 1, 500, dtype="f4")
    x[20, 499, 3] += far
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=chunks, compression="gzip")


pair("equal", "chunks-that-reach-far-within", reaching_far, (0, (40, 50, 60)), (1e-5, (40, 50, 60)))
pair("different", "chunks-that-reach-far", reaching_far, (0, (40, 50, 60)), (1, (1, 500, 500)))


def dataset(path, arguments):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", **arguments)


whole = (values * 1000).astype("i4")
other = whole.copy()
other[3, 3] += 1
pair("different", "lzf", dataset, dict(data=values, compression="lzf"), dict(data=far, compression="lzf"))
pair("equal", "lzf-within", dataset, dict(data=values, compression="lzf"), dict(data=near, compression="lzf"))
pair("different", "scale-offset", dataset, dict(data=whole, scaleoffset=0), dict(data=other, scaleoffset=0))
text = h5py.string_dtype()
lines = [f"line {i}" for i in range(300)]
pair("different", "texts", dataset, dict(data=lines, dtype=text), dict(data=lines[:-1] + ["another"], dtype=text))
pair("different", "texts-packed", dataset, dict(data=lines, dtype=text, compression="gzip"),
     dict(data=lines[:-1] + ["another"], dtype=text, compression="gzip"))
mixed = np.dtype([("id", "i4"), ("name", text)])
records = np.array([(i, f"name {i}") for i in range(50)], dtype=mixed)
changed = records.copy()
changed[17] = (17, "another name")
pair("different", "records-with-texts", dataset, dict(data=records), dict(data=changed))
ragged = h5py.vlen_dtype("f4")
rows = np.empty(20, dtype=object)
rows[:] = [np.arange(i, dtype="f4") for i in range(20)]
longer = rows.copy()
longer[5] = np.arange(6, dtype="f4")
pair("different", "ragged", dataset, dict(data=rows, dtype=ragged), dict(data=longer, dtype=ragged))


def unknown_filter(path, options):
    tail, array = options
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((1000,))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1000,))
        properties.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file.id, b"packed", h5py.h5t.NATIVE_FLOAT, space, properties)
        file["packed"].id.write_direct_chunk((0,), b"packed by nobody knows what" + tail)
        file["x"] = array


pair("unknown", "unknown-filter", unknown_filter, (b"1", values), (b"2", values))
pair("equal", "unknown-filter-of-the-same-bytes", unknown_filter, (b"1", values), (b"1", near))
pair("different", "unknown-filter-and-a-difference", unknown_filter, (b"1", values), (b"2", far))


def sparse(path, options):
    """A terabyte of which one chunk is written."""
    last, array = options
    with h5py.File(path, "w") as file:
        s = file.create_dataset("s", (1 << 37,), "f8", chunks=(1000,), fillvalue=1.0)
        s[5000:5010] = last
        file["x"] = array


pair("equal", "sparse-of-the-same-bytes", sparse, (2.0, values), (2.0, near))
pair("unknown", "sparse", sparse, (2.0, values), (3.0, near))
pair("different", "sparse-and-a-difference", sparse, (2.0, values), (3.0, far))


def furnished(path, options):
    """An array that is packed, so that its values move everything behind it, and much beside it."""
    array, change, version = options
    with h5py.File(path, "w", libver=version) as file:
        x = file.create_dataset("x", data=array, chunks=(10, 200), compression="gzip")
        x.attrs["scale_factor"] = 2.0 if change == "scale" else 1.0
        x.attrs["units"] = "km" if change == "units" else "m"
        x.attrs["fixed"] = np.bytes_("other" if change == "fixed" else "fixed")
        x.attrs["names"] = ["a", "c" if change == "names" else "b"]
        many = file.create_group("many")
        for i in range(30):
            many.attrs[f"number {i}"] = i + (100 if change == "many" and i == 29 else 0)
        for i in range(20):
            many.create_group(f"group {i}")
        if change == "group":
            many.create_group("one more")
        file["soft"] = h5py.SoftLink("/many" if change == "soft" else "/x")
        file["away"] = h5py.ExternalLink("other.h5" if change == "away" else "away.h5", "/x")
        file["hard"] = many if change == "hard" else x
        file["y"] = np.arange(10.0)
        reference = file["y"].ref if change == "reference" else x.ref
        file.attrs["main"] = reference
        file.create_dataset("references", data=[reference, x.ref], dtype=h5py.ref_dtype)
        region = x.regionref[0:5, 0:5] if change == "region" else x.regionref[0:5, 0:4]
        file.attrs["region"] = region
        colours = {"red": 0, "blue" if change == "enum" else "green": 1}
        file.create_dataset("colours", data=[0, 1, 1], dtype=h5py.enum_dtype(colours))
        file["log"] = "ended" if change == "log" else "begun"


for version in ["earliest", "latest"]:
    pair("equal", f"furnished-within-{version}", furnished, (values, "", version), (near, "", version))
    changes = ["scale", "units", "fixed", "names", "many", "group", "soft", "away", "hard", "reference", "region", "enum", "log"]
    for change in changes:
        pair("different", f"furnished-{change}-{version}", furnished, (values, "", version), (near, change, version))
# Libraries write regions in different ways.
pair("equal", "furnished-other-version", furnished, (values, "", "earliest"),
     (values, "", "latest"))


def behind_unknown_filter(path, options):
    """Values that are addresses, packed by a filter that nobody knows."""
    kind, change = options
    with h5py.File(path, "w") as file:
        first, second = (file.create_dataset(name, data=[n]) for n, name in enumerate("xy"))
        if kind == "references":
            values, dtype = [first.ref, first.ref if change else second.ref], h5py.ref_dtype
        else:
            values, dtype = [b"aa", b"bX" if change else b"bb", b"cc"], h5py.string_dtype("ascii")
        file.create_dataset("v", data=np.array(values, dtype), chunks=(2,), compression="gzip", shuffle=True)
    with open(path, "rb") as inside:
        data = inside.read()
    # The filter pipeline names deflate (1) with one value, the level; now it names a filter that nobody has.
    head = b"\x01\x00\x08\x00\x01\x00\x01\x00deflate\x00"
    assert data.count(head) == 1, data.count(head)
    with open(path, "wb") as out:
        out.write(data.replace(head, b"\xff\x7f\x08\x00\x01\x00\x01\x00deflate\x00"))


for kind in ["texts", "references"]:
    pair("equal", f"unknown-filter-{kind}-same", behind_unknown_filter, (kind, False), (kind, False))
    pair("unknown", f"unknown-filter-{kind}", behind_unknown_filter, (kind, False), (kind, True))


def chunk_key(path, damaged):
    """A file in the format of early libraries; the key of a chunk names another offset in its elements."""
    with h5py.File(path, "w", libver="earliest") as file:
        file["x"] = np.arange(5.0)
        file.create_dataset("v", data=np.arange(100.0).reshape(10, 10), chunks=(5, 10), compression="gzip")
    if damaged:
        with open(path, "r+b") as file:
            data = file.read()
            file.seek(data.index(b"TREE\x01") + 24 + 8 + 16 + 1)
            file.write(b"\x01")


pair("unknown", "chunk-key", chunk_key, False, True)


def user_block(path, text):
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", data=values, compression="gzip")
    with open(path, "r+b") as file:
        file.write(text)


pair("different", "user-block", user_block, b"one", b"two")


def virtual(path, data):
    layout = h5py.VirtualLayout(shape=(10,), dtype="f8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "x", shape=(10,))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, compression="gzip")
        file.create_virtual_dataset("v", layout)


pair("unknown", "virtual", virtual, values, near)


def growing(path, is_virtual):
    """The same rows, in a virtual dataset that grows with its source, which stores another extent than it has, or written out."""
    rows = np.arange(12.0).reshape(3, 4)
    source = path + ".source"
    with h5py.File(source, "w") as file:
        file.create_dataset("s", data=rows[:1], maxshape=(None, 4), chunks=(1, 4))
    with h5py.File(path, "w") as file:
        file["x"] = rows
        if is_virtual:
            layout = h5py.VirtualLayout((1, 4), "f8", maxshape=(None, 4))
            part = h5py.VirtualSource(os.path.basename(source), "s", (1, 4), maxshape=(None, 4))
            layout[: h5py.h5s.UNLIMITED, :] = part[: h5py.h5s.UNLIMITED, :]
            file.create_virtual_dataset("v", layout)
        else:
            file.create_dataset("v", data=rows, maxshape=(None, 4))
    with h5py.File(source, "r+") as file:
        file["s"].resize((3, 4))
        file["s"][:] = rows


pair("unknown", "virtual-growing", growing, True, False)


def netcdf(path, options):
    form, array, units = options
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        file.createDimension("y", 100)
        file.createDimension("x", 200)
        packed = dict(zlib=True) if form == "NETCDF4" else {}
        t = file.createVariable("time", "f8", ("time",))
        v = file.createVariable("v", "f8", ("y", "x"), **packed)
        r = file.createVariable("r", "f4", ("time", "x"), **packed)
        v.units = units
        v.scale_factor = 1.0
        v.set_auto_maskandscale(False)
        t[:] = [1, 2, 3]
        v[:] = array
        r[:] = np.ones((3, 200))
        file.title = "waves"


for form in ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"]:
    pair("equal", f"{form}-within", netcdf, (form, values, "m"), (form, near, "m"), "nc")
    pair("different", f"{form}-attribute", netcdf, (form, values, "m"), (form, near, "km"), "nc")
    pair("different", f"{form}-value", netcdf, (form, values, "m"), (form, far, "m"), "nc")


def archive(path, options):
    array, note = options
    np.savez_compressed(path, x=array, n=np.arange(5))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("note.txt", note)


pair("equal", "npz-within", archive, (values, "note"), (near, "note"), "npz")
pair("different", "npz-note", archive, (values, "note"), (near, "other"), "npz")


def objects(path, options):
    array, more = options
    listed = np.empty(2, dtype=object)
    listed[:] = [{"a": 1}, more]
    texts = np.array(["one", "two"])
    np.savez_compressed(path, x=array, listed=listed, texts=texts)


pair("equal", "npz-of-objects-within", objects, (values, [2]), (near, [2]), "npz")
pair("unknown", "npz-of-objects", objects, (values, [2]), (near, [3]), "npz")
pair("different", "npz-of-objects-and-a-difference", objects, (values, [2]), (far, [3]), "npz")


def records(path, options):
    kind, count = options
    data = np.zeros(5, dtype=kind)
    data["n"][3] = count
    np.savez(path, records=data, x=values)


one = [("n", "<i4"), ("s", "<U3")]
alike = [("n", "<u4"), ("s", "<U3")]
pair("equal", "npz-of-records", records, (one, 1), (one, 1), "npz")
pair("different", "npz-of-other-records", records, (one, 1), (one, 2), "npz")
pair("different", "npz-of-records-of-another-type", records, (one, 1), (alike, 1), "npz")


def array(path, data):
    np.save(path, data)


members = dict(names=["x", "n", "s", "in"], formats=["<f8", ("<i4", (2,)), "<U3", [("h", "<f2"), ("k", "|u1")]])
spread = np.dtype(dict(names=members["names"], formats=[">f8", (">i8", (2,)), "<U7", [("h", "<f2"), ("k", "|u1")]],
                       offsets=[8, 24, 48, 80], itemsize=96))


def many(kind, change=None):
    data = np.full(96 * 40, 90, "u1").view(np.void(96).dtype).view(kind).copy() if kind is spread else np.zeros(40, kind)
    data["x"], data["n"], data["s"] = np.sqrt(np.arange(40)), np.arange(80).reshape(40, 2), ["ab", "cde"] * 20
    data["in"]["h"], data["in"]["k"] = np.arange(40) / 8, 3
    if change:
        change(data)
    return data


packed_members = np.dtype(members)
pair("equal", "npy-records-aligned", array, many(packed_members), many(spread), "npy")
pair("equal", "npy-records-within", array, many(packed_members), many(spread, lambda d: d["x"].__iadd__(1e-4)), "npy")
for name, change in [("number", lambda d: d["n"].__setitem__((7, 1), -1)), ("text", lambda d: d["s"].__setitem__(9, "cdefg")),
                     ("half", lambda d: d["in"]["h"].__setitem__(3, 9)), ("real", lambda d: d["x"].__setitem__(5, 0.5))]:
    pair("different", f"npy-records-{name}", array, many(packed_members), many(spread, change), "npy")
words = np.array([["ab", "çde"], ["", "f"]])
pair("equal", "npy-texts", array, words, words.astype(">U9"), "npy")
pair("equal", "npy-texts-in-fortran", array, words, np.asfortranarray(words), "npy")
pair("different", "npy-texts-turned", array, words, words.T.copy(), "npy")
pair("equal", "npy-in-fortran", array, values, np.asfortranarray(near), "npy")
pair("different", "npy-in-fortran-turned", array, values[:100, :100], values[:100, :100].T, "npy")
eights = np.sqrt(np.arange(1, 2000, dtype="g"))
pair("equal", "npy-long-doubles", array, eights, eights * (1 + np.longdouble(2) ** -60), "npy")
pair("different", "npy-long-doubles-beyond", array, eights, eights + np.where(np.arange(1999) == 77, np.longdouble("0.0010001"), 0), "npy")


def array_and_more(path, more):
    with open(path, "wb") as file:
        np.save(file, values)
        file.write(more)


pair("different", "npy-with-more-behind", array_and_more, b"tail", b"TAIL", "npy")


# Records and other elements that are more than one number.
def member_type(order="<", real="f8", packed=True):
    point = np.dtype([("y", order + real), ("mask", "u1", (3,))], align=not packed)
    return np.dtype([("id", order + "i4"), ("x", order + real), ("in", point), ("corners", point, (2,)),
                     ("name", "S6"), ("move", order + "f4", (2, 3))], align=not packed)


def particles(kind, change=None, jitter=0.0, count=40):
    made = np.zeros(count, dtype=kind)
    at = np.arange(count)
    made["id"] = at
    made["x"] = at / 7 + jitter * np.sin(at)
    made["in"]["y"] = np.sqrt(at) - jitter
    made["in"]["mask"] = at[:, None] % 5
    made["corners"]["y"] = at[:, None] + np.array([0.25, 0.5])
    made["name"] = [b"p%d" % n for n in at]
    made["move"] = at[:, None, None] + np.arange(6).reshape(2, 3) + jitter
    changes = {"x": lambda: made["x"].__setitem__(17, 99.5), "id": lambda: made["id"].__setitem__(3, -1),
               "y": lambda: made["in"]["y"].__setitem__(5, -4.0),
               "corner": lambda: made["corners"]["y"].__setitem__((8, 1), -4.0),
               "mask": lambda: made["in"]["mask"].__setitem__((9, 2), 77),
               "name": lambda: made["name"].__setitem__(11, b"other"),
               "move": lambda: made["move"].__setitem__((12, 1, 0), 0.125)}
    if change:
        changes[change]()
    return made


def grouped(path, arguments):
    with h5py.File(path, "w") as file:
        file.create_dataset("g/p", **arguments)
        file["z"] = values


plain = dict(data=particles(member_type()))
for change in ["x", "id", "y", "corner", "mask", "name", "move"]:
    pair("different", f"members-{change}", grouped, plain, dict(data=particles(member_type(), change)))
packed = dict(chunks=(7,), compression="gzip", shuffle=True)
pair("equal", "members-within", grouped, plain, dict(data=particles(member_type(), jitter=1e-5)))
pair("equal", "members-packed", grouped, plain, dict(**plain, **packed))
pair("equal", "members-of-another-layout", grouped, plain, dict(data=particles(member_type(">", packed=False)), **packed))
pair("equal", "members-of-another-width", grouped, plain, dict(data=particles(member_type(real="f4"))))
pair("different", "members-renamed", grouped, plain,
     dict(data=particles(member_type()).astype([(n.replace("move", "moved"), d[0]) for n, d in member_type().fields.items()])))
sorted_texts = [b"alpha", b"beta", b"gamma"]
pair("equal", "texts-of-another-length", grouped, dict(data=np.array(sorted_texts, "S5")), dict(data=np.array(sorted_texts, "S9")))
pair("different", "texts-fixed", grouped, dict(data=np.array(sorted_texts, "S5")), dict(data=np.array([b"alpha", b"beta", b"delta"])))
pair("different", "texts-and-numbers", grouped, dict(data=np.array(sorted_texts, "S5")), dict(data=np.arange(3, dtype="u8")))
pair("different", "opaque", grouped, dict(data=np.array([b"\x01\x02\x03"] * 4, "V3")), dict(data=np.array([b"\x01\x02\x03"] * 3 + [b"\x01\x02\x04"], "V3")))
long = np.arange(30, dtype="g") / 7
nearly = long.copy()
nearly[4] = np.nextafter(nearly[4], np.longdouble(9))
assert float(nearly[4]) == float(long[4]) and nearly[4] != long[4]
beyond = long.copy()
beyond[4] = long[4] + np.longdouble(1) / 500
pair("equal", "long-double-within", grouped, dict(data=long), dict(data=nearly))
pair("different", "long-double", grouped, dict(data=long), dict(data=beyond))


def long_doubles(path, junk):
    """Bytes behind a long double belong to no value."""
    raw = long.copy().view("u1").reshape(30, 16)
    raw[:, 10:] = junk
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", shape=(30,), dtype="g", chunks=(30,))
        made.id.write_direct_chunk((0,), raw.tobytes())


pair("equal", "long-double-with-junk", long_doubles, 0, 99)


def of_type(path, options):
    """A dataset of a type that h5py has no name for."""
    kind, raw = options
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((len(raw) // kind.get_size(),))
        space = h5py.h5s.create_simple((len(raw) // kind.get_size(),))
        h5py.h5d.create(file.id, b"x", kind, space, properties)
        file["x"].id.write_direct_chunk((0,), raw)


bits = h5py.h5t.STD_B16LE
pair("different", "bits", of_type, (bits, b"\x01\x02\x03\x04"), (bits, b"\x01\x02\x03\x05"))
pair("equal", "bits-of-another-order", of_type, (bits, b"\x01\x02\x03\x04"), (h5py.h5t.STD_B16BE, b"\x02\x01\x04\x03"))
short = h5py.h5t.STD_I16LE.copy()
short.set_precision(12)
pair("equal", "twelve-bits-with-junk", of_type, (short, b"\x01\x0f\x03\x04"), (short, b"\x01\xff\x03\x54"))
pair("different", "twelve-bits", of_type, (short, b"\x01\x0f\x03\x04"), (short, b"\x01\x0e\x03\x04"))
spaces = h5py.h5t.C_S1.copy()
spaces.set_size(4)
spaces.set_strpad(h5py.h5t.STR_SPACEPAD)
zeros = h5py.h5t.C_S1.copy()
zeros.set_size(5)
zeros.set_strpad(h5py.h5t.STR_NULLPAD)
ended = h5py.h5t.C_S1.copy()
ended.set_size(5)
pair("equal", "texts-padded-in-another-way", of_type, (spaces, b"ab  cdef"), (zeros, b"ab\0\0\0cdef\0"))
pair("equal", "texts-with-junk-behind", of_type, (ended, b"ab\0xycdef\0"), (ended, b"ab\0zzcdef\0"))


def pointing(path, options):
    """References to objects that lie at other addresses in each file, in records, too."""
    first, target, words, version = options
    with h5py.File(path, "w", libver=version) as file:
        if first:
            file.create_group("many")
            for n in range(50):
                file["many"].create_group(f"{n}")
            del file["many"]
        file["x"], file["y"] = values, np.arange(10.0)
        file.create_group("g")
        both = np.dtype([("ref", h5py.ref_dtype), ("text", text), ("n", "f8"), ("many", h5py.vlen_dtype("i2"))])
        made = file.create_dataset("links", (3,), dtype=both)
        for n in range(3):
            made[n] = (file[target].ref if n == 1 else file["x"].ref, words if n == 2 else "same", n + 1e-5 * first,
                       np.arange(n, dtype="i2"))
        refs = file.create_dataset("refs", (3,), dtype=h5py.ref_dtype)
        refs[1] = file[target].ref


for version in ["earliest", "latest"]:
    pair("equal", f"pointing-{version}", pointing, (False, "g", "words", version), (True, "g", "words", version))
    pair("different", f"pointing-elsewhere-{version}", pointing, (False, "g", "words", version), (True, "y", "words", version))
    pair("different", f"pointing-words-{version}", pointing, (False, "g", "words", version), (True, "g", "other", version))


def numbered(path, options):
    kind, number = options
    with h5py.File(path, "w") as file:
        file["x"] = values
        file["x"].attrs["count"] = np.array([1, number], kind)


pair("equal", "attribute-of-another-width", numbered, ("<u2", 7), (">u8", 7))
pair("equal", "attribute-f4-and-f8", numbered, ("f4", 0.5), ("f8", 0.5))
pair("different", "attribute-of-another-width-and-value", numbered, ("i2", 7), ("i8", 8))
pair("different", "attribute-of-another-kind", numbered, ("i4", 7), ("f4", 7))


def committed(path, kind):
    with h5py.File(path, "w") as file:
        file["kind"] = np.dtype(kind)
        file.create_dataset("x", data=np.arange(9), dtype="f8")


pair("different", "committed-type", committed, "f4", "f8")


def sharing(path, options):
    """Equal messages are kept once for all objects, or not."""
    shared, units, array = options
    settings = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    if shared:
        # h5py has no names for these calls of its library.
        library = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "h5py" in line and "libhdf5-" in line))
        number = ctypes.c_int64(settings.id)
        assert library.H5Pset_shared_mesg_nindexes(number, 2) >= 0
        assert library.H5Pset_shared_mesg_index(number, 0, 0x0F, 10) >= 0
        assert library.H5Pset_shared_mesg_index(number, 1, 0x10, 10) >= 0
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    with h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, settings, access)) as file:
        for n in range(4):
            made = file.create_dataset(f"x{n}", data=array[n], dtype="f8", chunks=(50,), compression="gzip", fillvalue=3.5)
            made.attrs["units"] = np.bytes_(units)
            made.attrs["many"] = np.arange(20)
        for n in range(20):
            made.attrs[f"more {n}"] = np.bytes_("the same text")


pair("equal", "shared-messages", sharing, (True, "kilometres", values), (False, "kilometres", near))
pair("different", "shared-messages-units", sharing, (True, "kilometres", values), (True, "nanometres", near))
pair("different", "shared-messages-value", sharing, (True, "kilometres", values[47:]), (True, "kilometres", far[47:]))


def reported(name, write, a, b, expected):
    """A pair with the differences that must be reported: variable, index, both values as text."""
    pair("reported", name, write, a, b)
    with open(os.path.join(folder, "reported", name, "expected.json"), "w") as out:
        json.dump(expected, out)


reported("member-x", grouped, plain, dict(data=particles(member_type(), "x")), [["g/p.x", [17], repr(17 / 7), "99.5"]])
reported("member-id", grouped, plain, dict(data=particles(member_type(), "id")), [["g/p.id", [3], "3", "-1"]])
reported("member-in-y", grouped, plain, dict(data=particles(member_type(), "y")), [["g/p.in.y", [5], repr(5 ** 0.5), "-4.0"]])
reported("member-corner", grouped, plain, dict(data=particles(member_type(), "corner")), [["g/p.corners.y", [8, 1], "8.5", "-4.0"]])
reported("member-mask", grouped, plain, dict(data=particles(member_type(), "mask"), **packed), [["g/p.in.mask", [9, 2], "4", "77"]])
reported("member-name", grouped, plain, dict(data=particles(member_type(), "name")), [["g/p.name", [11], '"p11"', '"other"']])
reported("member-move", grouped, plain, dict(data=particles(member_type(">"), "move")), [["g/p.move", [12, 1, 0], "15.0", "0.125"]])
reported("texts", dataset, dict(data=lines, dtype=text), dict(data=lines[:7] + ["another"] + lines[8:], dtype=text),
         [["x", [7], '"line 7"', '"another"']])
reported("ragged", dataset, dict(data=rows, dtype=ragged), dict(data=np.array(list(rows[:3]) + [np.array([0.5, 1, 2], "f4")] + list(rows[4:]), dtype=object), dtype=ragged),
         [["x", [3], "[0, 1, 2]", "[0.5, 1, 2]"]])
reported("long", grouped, dict(data=long), dict(data=long + (np.arange(30) == 2)), [["g/p", [2], "2.857142857142857142", "1.285714285714285714"]])
colours = h5py.enum_dtype({"red": 0, "green": 1, "blue": 42}, basetype=">i2")
reported("enumeration", dataset, dict(data=np.array([0, 1, 42]), dtype=colours), dict(data=np.array([0, 42, 42]), dtype=colours),
         [["x", [1], "green (1)", "blue (42)"]])
reported("bits", of_type, (bits, b"\x01\x02\x03\x04"), (bits, b"\x01\x02\x03\x05"), [["x", [1], "0x0403", "0x0503"]])
reported("pointing", pointing, (False, "g", "words", "latest"), (True, "y", "other", "latest"),
         [["links.ref", [1], "→ /g", "→ /y"], ["links.text", [2], '"words"', '"other"'], ["refs", [1], "→ /g", "→ /y"]])


# Values in other files of the same folder.
def outside(answer, name, write, a, b):
    where = os.path.join(folder, "outside", answer, name)
    os.makedirs(where, exist_ok=True)
    for side, data in (("a", a), ("b", b)):
        write(where, side, data)


cube = np.arange(4 * 6 * 5, dtype="f4").reshape(4, 6, 5)


def joined(where, side, options):
    """Each step of an array in a file of its own, and some of it in the file itself."""
    array, kind = options
    with h5py.File(os.path.join(where, side + ".h5"), "w", libver="latest") as file:
        if kind == "plain":
            file["x"] = array
            return
        layout = h5py.VirtualLayout(shape=array.shape, dtype=array.dtype)
        for n in range(len(array)):
            source = f"{side}-{n}.h5" if kind != "named" else f"{side} a long name that several mappings share.h5"
            if kind == "strided":
                # Rows and columns take turns in two datasets, the other way round.
                for half in range(2):
                    layout[n, half::2, 1:4] = h5py.VirtualSource(source, f"half{half}", shape=(5, 3))[1:4, :]
                    layout[n, half::2, 0::4] = h5py.VirtualSource(source, f"rim{half}", shape=(6,)).__getitem__(slice(None))
            elif kind == "named":
                # The last part lies in the file itself.
                inside = n == len(array) - 1
                layout[n] = h5py.VirtualSource("." if inside else source, "a long name of a dataset", shape=array.shape)[n]
                if inside:
                    file["a long name of a dataset"] = array
            else:
                layout[n] = h5py.VirtualSource(source, "part/x", shape=array.shape[1:])
            with h5py.File(os.path.join(where, source), "w") as other:
                if kind == "named":
                    other["a long name of a dataset"] = array
                    continue
                if kind == "strided":
                    for half in range(2):
                        padded = np.zeros((5, 3), array.dtype)
                        padded[1:4] = array[n, half::2, 1:4]
                        other[f"half{half}"] = padded
                        other[f"rim{half}"] = np.ascontiguousarray(array[n, half::2, 0::4]).ravel()
                elif kind != "missing" or n != 2:
                    own = ">f2" if kind == "narrow" else ">f4"
                    other.create_dataset("part/x", data=array[n], dtype=own, chunks=(4, 2), compression="gzip")
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    if kind == "gone":
        os.remove(os.path.join(where, f"{side}-2.h5"))


moved = cube.copy()
moved[3, 2, 2] = -7
outside("equal", "joined", joined, (cube, "plain"), (cube, "joined"))
outside("equal", "narrow", joined, (cube, "joined"), (cube, "narrow"))
outside("different", "narrow", joined, (cube, "joined"), (moved, "narrow"))
outside("equal", "strided", joined, (cube, "plain"), (cube, "strided"))
outside("equal", "joined-both", joined, (cube, "joined"), (cube + np.float32(1e-5), "joined"))
outside("different", "joined", joined, (cube, "plain"), (moved, "joined"))
outside("equal", "named", joined, (cube, "named"), (cube, "named"))
outside("different", "named", joined, (cube, "named"), (moved, "named"))
outside("different", "strided", joined, (cube, "plain"), (moved, "strided"))
filled = cube.copy()
filled[2] = -1
for kind in ["missing", "gone"]:
    outside("unknown", kind, joined, (filled, "plain"), (cube, kind))
    outside("different", kind, joined, (cube, "plain"), (cube, kind))


def growing(where, side, options):
    """Arrays that have as many columns as their sources have, or as many parts as there are sources."""
    array, kind = options
    rows, columns = array.shape
    endless = h5py.h5s.UNLIMITED
    with h5py.File(os.path.join(where, side + ".h5"), "w", libver="latest") as file:
        if kind == "plain":
            file["x"] = array
            return
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_fill_value(np.array(-1, "f4"))
        space = h5py.h5s.create_simple((rows, 2), (rows, endless))
        if kind in ("pattern", "pattern-gone"):
            # Parts of three columns, side by side, or every other three.
            space.select_hyperslab((0, 0), (1, endless), (1, 3), (rows, 3))
            source = h5py.h5s.create_simple((rows, 3))
            properties.set_virtual(space, f"{side}-part%b.h5".encode(), b"x", source)
            for n in range(1 if kind == "pattern-gone" else 0, columns // 3):
                with h5py.File(os.path.join(where, f"{side}-part{n}.h5"), "w") as other:
                    other["x"] = array[:, 3 * n : 3 * n + 3]
        else:
            for row in range(rows):
                space.select_hyperslab((row, 0), (1, endless), (1, 1), (1, 1))
                source = h5py.h5s.create_simple((1,), (endless,))
                source.select_hyperslab((0,), (endless,), (1,), (1,))
                properties.set_virtual(space, f"{side}-row{row}%%.h5".encode(), b"x", source)
                if kind == "gone" and row == 1:
                    continue
                # The last row may be shorter.
                own = array[row] if kind != "uneven" or row < rows - 1 else array[row, :-2]
                with h5py.File(os.path.join(where, f"{side}-row{row}%.h5"), "w") as other:
                    other.create_dataset("x", data=own, chunks=(4,), maxshape=(None,))
        space.select_all()
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, properties)
    if kind == "pattern-gone":
        # Parts count up to the first that is missing; without any, the library reads nothing.
        return
    with h5py.File(os.path.join(where, side + ".h5")) as file:
        expected = array.copy()
        if kind == "uneven":
            expected[-1, -2:] = -1
        if kind == "gone":
            expected[1] = -1
        assert np.array_equal(file["x"][:], expected), (kind, file["x"][:])


sheet = np.arange(4 * 12, dtype="f4").reshape(4, 12)
other_sheet = sheet.copy()
other_sheet[2, 10] += 1
for kind in ["pattern", "grown"]:
    outside("equal", kind, growing, (sheet, "plain"), (sheet, kind))
    outside("different", kind, growing, (sheet, "plain"), (other_sheet, kind))
    outside("different", kind + "-longer", growing, (sheet[:, :9], kind), (sheet, kind))
uneven = sheet.copy()
uneven[-1, -2:] = -1
outside("equal", "uneven", growing, (uneven, "plain"), (sheet, "uneven"))
gone = sheet.copy()
gone[1] = -1
outside("unknown", "grown-gone", growing, (gone, "plain"), (sheet, "gone"))
outside("unknown", "pattern-gone", growing, (sheet, "pattern-gone"), (other_sheet, "pattern-gone"))


def circle(where, side, value):
    with h5py.File(os.path.join(where, side + ".h5"), "w", libver="latest") as file:
        layout = h5py.VirtualLayout(shape=(9,), dtype="f8")
        layout[:] = h5py.VirtualSource(".", "round", shape=(9,))
        file.create_virtual_dataset("round", layout)
        file["x"] = np.arange(9.0) + value


outside("unknown", "circle", circle, 0.0, 1e-5)
outside("different", "circle", circle, 0.0, 1.0)


def linked(where, side, moved):
    """Links to other names, under which the same values lie."""
    with h5py.File(os.path.join(where, side + ".h5"), "w") as file:
        file["x"], file["y"] = np.arange(9.0), np.arange(9.0) + moved
        file["records"] = particles(member_type())
        file["soft"] = h5py.SoftLink("/x" if side == "a" else "/y")
        file["soft records"] = h5py.SoftLink("/records" if side == "a" else "records")
        file["away"] = h5py.ExternalLink(side + "-target.h5", "/g")
        file["nowhere"] = h5py.SoftLink("/none")
        file.create_group("g")["up"] = h5py.SoftLink("/")
    with h5py.File(os.path.join(where, side + "-target.h5"), "w") as file:
        file["g/z"] = np.arange(5.0) + moved


outside("different", "linked", linked, 0.0, 1e-5)


def raw_beside(where, side, options):
    array, kind = options
    with h5py.File(os.path.join(where, side + ".h5"), "w") as file:
        if kind == "plain":
            file["x"] = array
            return
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        big = array.astype(array.dtype.newbyteorder(">")).tobytes()
        names = []
        for n, (start, end) in enumerate([(0, 100), (100, 104), (104, len(big))]):
            properties.set_external(f"{side}-{n}.raw".encode(), 8, end - start)
            names.append((f"{side}-{n}.raw", big[start:end]))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32BE, h5py.h5s.create_simple(array.shape), properties)
    for name, part in names:
        if kind == "gone" and name == f"{side}-1.raw":
            continue
        with open(os.path.join(where, name), "wb") as out:
            out.write(b"12345678" + (part[:-8] if kind == "cut" and name == f"{side}-2.raw" else part))


outside("equal", "external", raw_beside, (cube, "plain"), (cube, "external"))
outside("different", "external", raw_beside, (cube, "plain"), (moved, "external"))
outside("unknown", "external-gone", raw_beside, (cube, "plain"), (cube, "gone"))
ended_early = cube.copy()
ended_early[3, 5, 3:] = 0
outside("unknown", "external-cut", raw_beside, (ended_early, "plain"), (cube, "cut"))


def objects():
    """Files whose objects, links and texts differ, or do not: FOLDER/objects/NAME-{a,b}.h5."""
    where = os.path.join(folder, "objects")
    os.makedirs(where, exist_ok=True)
    x = np.array([1.0, 2.0, 3.0])

    def write(name, make):
        with h5py.File(os.path.join(where, name + ".h5"), "w") as file:
            make(file)

    def kinds(file, of, group):
        file[of] = x
        file.create_group(group)

    def twice(file, is_one):
        file["y"] = x
        file["g/x"] = file["y"] if is_one else x

    write("two-names", lambda file: twice(file, True))
    write("two-objects", lambda file: twice(file, False))
    write("kind-a", lambda file: kinds(file, "p", "q"))
    write("kind-b", lambda file: kinds(file, "q", "p"))
    write("lone-a", lambda file: file.create_dataset("p", data=x))
    write("lone-b", lambda file: file.create_dataset("q", data=x))

    def links(file, factor):
        file["out"] = factor * x
        file["g/y"] = x
        file["g/soft"] = h5py.SoftLink("/out")

    def hard(file, factor):
        file["a"] = factor * x
        file["g/z"] = x
        file["g/y"] = file["a"]

    def packed(file, factor):
        file["g/t"] = np.arange(10, dtype="i2")
        file["g/t"].attrs["scale_factor"] = 0.01 * factor
        file["l"] = h5py.SoftLink("/g")

    def attributes(file, factor):
        file["x"] = x
        file["x"].attrs["units"] = "m" * factor

    def texts(file, dtype, unit):
        file.create_dataset("s", data=["abc", "de"] if dtype is None else np.array([b"abc", b"de"], dtype))
        file.attrs["units"] = unit

    def nest(file, side):
        file["g/same"] = x
        file["g/l"] = h5py.ExternalLink(f"deep-{side}.h5", "/out")

    def groups(file):
        for name in ("g1", "g2"):
            file[f"{name}/x"] = x
            file[f"{name}/y"] = file[f"{name}/x"]
        file["round/trip"] = h5py.SoftLink("/round")

    def empty(file, to):
        file["x"] = x
        file.create_group("g")
        file["t"] = np.dtype("f8")
        file["l"] = h5py.SoftLink("/" + to)

    def notes(file, value):
        file["x"] = x
        file.create_group("meta").attrs["run"] = value
        file["meta/more"] = value * x

    for side, factor in (("a", 1), ("b", 2)):
        write(f"links-{side}", lambda file: links(file, factor))
        write(f"hard-{side}", lambda file: hard(file, factor))
        write(f"packed-{side}", lambda file: packed(file, factor))
        write(f"target-{side}", lambda file: attributes(file, factor))
        write(f"away-{side}", lambda file: file.__setitem__("x", h5py.ExternalLink(f"target-{side}.h5", "/x")))
        write(f"deep-{side}", lambda file: links(file, factor))
        write(f"middle-{side}", lambda file: nest(file, side))
        write(f"nest-{side}", lambda file: file.__setitem__("g", h5py.ExternalLink(f"middle-{side}.h5", "/g")))
        write(f"empty-{side}", lambda file: empty(file, "gt"[factor - 1]))
        write(f"notes-{side}", lambda file: notes(file, factor))
    write("notes-c", lambda file: notes(file, 1))
    write("groups", groups)
    write("real", lambda file: attributes(file, 1))
    write("texts-a", lambda file: texts(file, "S3", np.bytes_("m/s")))
    write("texts-b", lambda file: texts(file, None, "m/s"))
    write("texts-c", lambda file: texts(file, "S5", np.array(b"m/s", "S6")))
    write("texts-d", lambda file: texts(file, "S5", np.array(b"m/h", "S6")))
    np.savez(os.path.join(where, "lone-a.npz"), p=x)
    np.savez(os.path.join(where, "lone-b.npz"), q=x)


objects()
