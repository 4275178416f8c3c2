"""Reads what `treering export --as` writes with h5py, numpy and zarr, and compares it with what a program saved."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import zarr

PROGRAM, SAVE_ARRAYS = sys.argv[1:3]
SHAPES = [(), (1,), (5,), (0, 3), (4, 5), (3, 4, 5), (2, 3, 4, 5)]
LABELS = {"types": {"git": "4542149", "made by": "Zoë\nand others"}}
NUMPY = {
    "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8",
    "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16", "bool": "?", "bytes": "u1",
}


def treering(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def export(place, to, form, *arguments):
    code, out, err = treering("export", place, "--to", to, "--as", form, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


def expected(dtype, shape):
    """The values that examples/save_arrays.rs has saved."""
    place = np.arange(int(np.prod(shape, dtype=int)), dtype=np.int64).reshape(shape)
    value = (7 * place + 3) % 251
    if dtype == "bool":
        return (value & 1).astype(bool)
    if dtype == "bf16":
        return value.astype(np.float32)
    if dtype[0] == "c":
        return (value / 4 + 1j * (value + 1) / 4).astype(NUMPY[dtype])
    if dtype[0] == "f":
        return (value / 4).astype(NUMPY[dtype])
    return value.astype(NUMPY[dtype])


def check(name, found, dtype, shape, bits=False):
    """`bits`: the format has no bf16, and holds the upper halves of f32 values."""
    wanted = expected(dtype, shape)
    if dtype == "bf16" and bits:
        assert found.dtype == np.uint16, (name, found.dtype)
        found = (found.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    assert found.dtype == wanted.dtype, (name, found.dtype, wanted.dtype)
    assert found.shape == wanted.shape and np.array_equal(found, wanted), name


def arrays_of(folder, told):
    """All arrays of an export, by their names; those of HDF5 and Zarr with their attributes."""
    path = Path(told["path"])
    assert path.parent == folder
    names = [array["name"] for array in told["arrays"]]
    if told["format"] == "npy":
        files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        assert files == sorted(names)
        found = {}
        for name in names:
            array = np.load(path / name, allow_pickle=False)
            found[name.removesuffix(".npy")] = array, {}
        return found
    if told["format"] == "hdf5":
        with h5py.File(path) as file:
            about = {"run": told["run"], "step": told["step"], **LABELS.get(told["run"], {})}
            assert dict(file.attrs) == about, dict(file.attrs)
            found = {}

            def visit(name, item):
                if isinstance(item, h5py.Dataset):
                    found[name] = item[()] if item.shape else np.asarray(item[()]), dict(item.attrs)

            file.visititems(visit)
        assert sorted(found) == sorted(names)
        return found
    root = zarr.open_group(path, mode="r", zarr_format=3)
    assert dict(root.attrs) == {"run": told["run"], "step": told["step"], **LABELS.get(told["run"], {})}
    found = {name: item for name, item in root.members(max_depth=None) if isinstance(item, zarr.Array)}
    assert sorted(found) == sorted(names)
    return {name: (np.asarray(item[...]), dict(item.attrs)) for name, item in found.items()}


def every_type(store, folder):
    count = 0
    for form in ("npy", "hdf5", "zarr"):
        told = export(f"{store}#types", folder, form)
        assert told["step"] == 7 and told["format"] == form
        found = arrays_of(folder, told)
        for dtype in [*NUMPY, "bf16"]:
            for number, shape in enumerate(SHAPES):
                for order in "cf":
                    name = f"{dtype}/{number}-{order}"
                    array, attributes = found.pop(name)
                    check((form, name), array, dtype, shape, bits=form != "hdf5")
                    noted = {"treering_type": dtype} if dtype in ("bf16", "bytes") and form != "npy" else {}
                    assert attributes == noted, (form, name, attributes)
                    count += 1
        for order in "cf":
            array, attributes = found.pop(f"large-{order}")
            noted = {} if form == "npy" else {"units": "K", "long name": "Größe", "empty": ""}
            assert attributes == noted, (form, attributes)
            check((form, order), array, "f64", (1201, 1003))
            if form == "npy":
                assert array.flags.f_contiguous == (order == "f")
            count += 1
        assert not found
        listed = {array["name"]: array for array in told["arrays"]}
        bf16 = listed["bf16/4-c" + (".npy" if form == "npy" else "")]
        assert bf16["dtype"] == "bf16" and bf16["written_as"] == ("bf16" if form == "hdf5" else "u16")
        assert bf16["shape"] == [4, 5] and bf16["bytes"] == 40 and not bf16["rounded"]
    # The library reads parts of arrays, follows names, and adds to the file.
    with h5py.File(folder / "types-7.h5", "r+") as file:
        large = file["large-f"]
        assert np.array_equal(large[7:900:13, 5], expected("f64", (1201, 1003))[7:900:13, 5])
        file["f64/new"] = np.arange(5)
        file["f64"].attrs["note"] = "added"
        del file["bf16/4-c"].attrs["treering_type"]
    with h5py.File(folder / "types-7.h5") as file:
        assert list(file["f64/new"]) == list(range(5)) and len(file["f64"]) == 15
        assert "treering_type" not in file["bf16/4-c"].attrs and file["bf16/4-f"].attrs["treering_type"] == "bf16"
        check("added to", file["large-c"][()], "f64", (1201, 1003))
    large = zarr.open_group(folder / "types-7.zarr", mode="r")["large-f"]
    assert large.nchunks > 3
    assert np.array_equal(large[7:900, 5:9], expected("f64", (1201, 1003))[7:900, 5:9])
    return count


def ranks(store, folder):
    for form in ("npy", "hdf5", "zarr"):
        found = arrays_of(folder, export(f"{store}#ranks@11", folder, form))
        assert sorted(found) == ["dt", "flow/c", "flow/f", "points", "rank-0/seed", "rank-1/seed", "rank-2/seed"]
        for name in ("flow/c", "flow/f"):
            check((form, name), found[name][0], "f32", (30, 60, 4))
            assert form == "npy" or found[name][1] == ({"units": "m/s"} if name == "flow/c" else {})
        check((form, "points"), found["points"][0], "i64", (303, 3))
        assert found["dt"][0].shape == () and found["dt"][0] == 0.25
        assert found["rank-2/seed"][0].tolist() == [2, 2, 2]
        one = folder / "one"
        found = arrays_of(one, export(f"{store}#ranks", one, form, "--rank", 1, "--vars", "flow/*"))
        assert sorted(found) == ["rank-1/flow/c", "rank-1/flow/f"]
        for array, _ in found.values():
            assert np.array_equal(array, expected("f32", (30, 60, 4))[:, 19:41])


def ingested(folder):
    """Arrays of files that were ingested; what is no array of theirs is left out."""
    source = folder / "in"
    source.mkdir()
    values = np.arange(60.0).reshape(3, 20)
    with h5py.File(source / "state.h5", "w") as file:
        file.create_dataset("fields/t", data=values, chunks=(2, 7), compression="gzip")
        file["names"] = np.array(["x", "y"], dtype=h5py.string_dtype())
    np.save(source / "mask.npy", values > 7)
    code, _, err = treering("ingest", f"{folder}/files#sim@5", source)
    assert code == 0, err
    names = []
    for form in ("npy", "hdf5", "zarr"):
        told = export(f"{folder}/files#sim", folder, form)
        found = {name: array for name, (array, _) in arrays_of(folder, told).items()}
        equal = [name for name, array in found.items() if np.array_equal(array, values)]
        masks = [name for name, array in found.items() if array.dtype == bool and np.array_equal(array, values > 7)]
        assert len(equal) == 1 and len(masks) == 1 and len(found) == 2, found
        assert [whole["name"] for whole in told["not_taken_apart"]] == ["names"], told
        names.append((equal, masks))
    # The array of mask.npy is that file again, and no mask.npy.npy.
    fields = ["state.h5/fields/t"]
    assert names == [(fields, ["mask"]), (fields, ["mask.npy"]), (fields, ["mask.npy"])], names
    # Without --as, the files themselves.
    code, _, err = treering("export", f"{folder}/files#sim", "--to", folder / "out")
    assert code == 0, err
    assert (folder / "out/state.h5").read_bytes() == (source / "state.h5").read_bytes()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store"
        subprocess.run([SAVE_ARRAYS, str(store)], check=True)
        count = every_type(store, folder)
        ranks(store, folder)
        ingested(folder)
    print(f"h5py, numpy and zarr read {count} exported arrays as they were saved")


main()
