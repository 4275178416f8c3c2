"""Pairs of files for tests/contents.rs: FOLDER/ANSWER/NAME/{a,b}.EXTENSION.

The answer is that of a comparison within 1e-3: `equal`, `different`, or `unknown` (never equal). The pairs
are those in which what was not taken apart, or is no array, decides.
"""
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
        # Libraries write regions in different ways.
        if change != "no region":
            file.attrs["region"] = region
        colours = {"red": 0, "blue" if change == "enum" else "green": 1}
        file.create_dataset("colours", data=[0, 1, 1], dtype=h5py.enum_dtype(colours))
        file["log"] = "ended" if change == "log" else "begun"


for version in ["earliest", "latest"]:
    pair("equal", f"furnished-within-{version}", furnished, (values, "", version), (near, "", version))
    changes = ["scale", "units", "fixed", "names", "many", "group", "soft", "away", "hard", "reference", "region", "enum", "log"]
    for change in changes:
        pair("different", f"furnished-{change}-{version}", furnished, (values, "", version), (near, change, version))
pair("equal", "furnished-other-version", furnished, (values, "no region", "earliest"),
     (values, "no region", "latest"))


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


def array_and_more(path, more):
    with open(path, "wb") as file:
        np.save(file, values)
        file.write(more)


pair("different", "npy-with-more-behind", array_and_more, b"tail", b"TAIL", "npy")
