#!/usr/bin/env bash
# Installs what makes the corpus, or says what is missing: needs.sh VENV [peers]
# With "peers" also what Treering is measured beside.
set -euo pipefail
venv=$1 peers=${2:-}

have() { command -v "$1" >/dev/null 2>&1; }
system() { /usr/bin/python3 -c "import $1" >/dev/null 2>&1; }

# The program that is missing, and the Debian package that has it.
missing=()
have mpirun || missing+=(openmpi-bin)
have h5diff || missing+=(hdf5-tools)
system ensurepip || missing+=(python3-venv)
for module in h5py mpi4py matplotlib; do
    system $module || missing+=(python3-$module)
done
# The library by the name that Python looks for is in the -dev package.
system 'ctypes; ctypes.CDLL("liblammps.so")' || missing+=(liblammps-dev)
system lammps || missing+=(python3-lammps)
system meep || missing+=(python3-meep-openmpi)
packages=(veros mpi4py netCDF4 h5py)
modules='veros, mpi4py, netCDF4, h5py'
if [ "$peers" = peers ]; then
    have zstd || missing+=(zstd)
    have xz || missing+=(xz-utils)
    have xdelta3 || missing+=(xdelta3)
    have borg || missing+=(borgbackup)
    have restic || missing+=(restic)
    packages+=(blosc2 pcodec fpzip)
    modules+=', blosc2, pcodec, fpzip'
fi

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && have apt-get; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
    else
        echo "missing: ${missing[*]}. Install these packages, or run 'make corpus' as root on Debian." >&2
        exit 1
    fi
fi
if ! "$venv/bin/python" -c "import $modules" 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
fi
