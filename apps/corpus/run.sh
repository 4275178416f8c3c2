#!/usr/bin/env bash
# Runs one of the programs on 8 ranks: run.sh VENV SET ARGUMENTS...
set -euo pipefail
here=$(dirname "$0") venv=$1 set=$2
shift 2
# LAMMPS and Meep are there for Debian's own Python only.
python=/usr/bin/python3
[ "$set" = ocean ] && python=$venv/bin/python
export OMP_NUM_THREADS=1
exec mpirun --oversubscribe --allow-run-as-root -np 8 "$python" "$here/$set.py" "$@"
