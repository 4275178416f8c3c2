"""Compares what `treering compare` says with what numpy says, on files that numpy wrote."""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PROGRAM = sys.argv[1]


def treering(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def compare(a, b, *arguments):
    code, out, err = treering("compare", a, b, "--json", *arguments)
    assert code in (0, 1), err
    return code, json.loads(out)


def check(folder, name, a, b, abs_bound, rel_bound, nan_equal):
    """One pair of arrays: with trees, without, and by numpy, must say the same."""
    paths = folder / f"{name}-a.npy", folder / f"{name}-b.npy"
    for path, array in zip(paths, (a, b)):
        np.save(path, array)
    arguments = ["--abs", abs_bound, "--rel", rel_bound]
    arguments += [] if nan_equal else ["--nan", "different"]
    with np.errstate(all="ignore"):
        near = np.isclose(a, b, rtol=rel_bound, atol=abs_bound, equal_nan=nan_equal)
        apart = np.abs(a.astype(np.complex128 if np.iscomplexobj(a) else np.float64) - b)
    expected = int((~near).sum())
    order = "F" if np.isfortran(a) else "C"
    answers = [compare(*paths, *arguments, "--no-trees")]
    for path in paths:
        code, _, err = treering("tree", path, "--abs", abs_bound, "--rel", rel_bound)
        assert code == 0, err
    answers.append(compare(*paths, *arguments))
    for code, answer in answers:
        row = answer["variables"][0]
        assert code == (1 if expected else 0), (name, code)
        assert answer["equal"] == (expected == 0), name
        assert answer["differences"] == expected, (name, answer["differences"], expected)
        if expected:
            first = np.flatnonzero(~near.ravel(order=order))[0]
            index = list(map(int, np.unravel_index(first, a.shape, order=order)))
            assert row["first_index"] == index, (name, row["first_index"], index)
            finite = apart[~near & np.isfinite(apart)]
            if finite.size and np.isfinite(apart[~near]).all():
                largest = float(finite.max())
                assert abs(row["max_difference"] - largest) <= 1e-9 * largest, name
                rms = float(np.sqrt((finite**2).mean()))
                assert abs(row["rms"] - rms) <= 1e-9 * rms, name
        assert row["nans"] == [int(np.isnan(a).sum()), int(np.isnan(b).sum())], name


def arrays(random, dtype, shape):
    a = random.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * random.standard_normal(shape)
    a = a.astype(dtype)
    b = (a + (random.standard_normal(shape) * 1e-3).astype(a.real.dtype)).astype(dtype)
    same = random.random(shape) < 0.9
    b[same] = a[same]
    return a, b


def main():
    random = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = []
        for dtype in ("<f2", "<f4", "<f8", ">f4", ">f8", "<c8", "<c16"):
            for shape in ((), (1,), (5000,), (37, 41), (9, 11, 13)):
                for order in "CF":
                    a, b = arrays(random, np.dtype(dtype), shape or (1,))
                    a, b = a.reshape(shape), b.reshape(shape)
                    a, b = np.array(a, order=order), np.array(b, order=order)
                    if a.size > 100:
                        a.ravel(order="K")[7] = np.nan
                        b.ravel(order="K")[[7, 50]] = np.nan
                        a.ravel(order="K")[9] = np.inf
                        b.ravel(order="K")[9] = np.inf
                    for bounds in ((1e-3, 0.0), (0.0, 1e-2), (1e-4, 1e-3), (0.0, 0.0)):
                        for nan_equal in (True, False):
                            # numpy computes the bound in the type of the arrays: only far from it
                            # must it agree, so half floats are left to the tests of the library.
                            if "2" in dtype and bounds != (0.0, 0.0):
                                continue
                            cases.append((f"case{len(cases)}", a, b, *bounds, nan_equal))
        # Each case waits for processes of its own, so several are checked side by side.
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda case: check(folder, *case), cases))
        for save in (np.savez, np.savez_compressed):
            a = {"x": random.standard_normal(70000), "n": np.arange(1000)}
            b = {"x": a["x"] + 1e-7, "n": a["n"] + (a["n"] == 77)}
            paths = folder / f"{save.__name__}-a.npz", folder / f"{save.__name__}-b.npz"
            save(paths[0], **a)
            save(paths[1], **b)
            code, answer = compare(*paths, "--abs", "1e-6")
            rows = {row["name"]: row for row in answer["variables"]}
            assert code == 1 and rows["x"]["differences"] == 0
            assert rows["n"]["differences"] == 1 and rows["n"]["first_index"] == [77]
        listed = folder / "list.npy"
        compare(*paths, "--abs", "1e-8", "--list", listed)
        records = np.load(listed)
        assert len(records) == 70001 and np.allclose(records["a"][:70000].real, a["x"], atol=0, rtol=0)
    print(f"treering and numpy agree on {len(cases)} pairs of arrays")


main()
