#!/usr/bin/env bash
# Every step of a set is ingested, and exported byte for byte; then the program continues from what
# came back, and gets where it got without: check.sh VENV TREERING SET-FOLDER
set -euo pipefail
here=$(dirname "$0") venv=$1 treering=$2 folder=${3%/}
set=$(basename "$folder")
tmp=$(mktemp -d "$folder.check.XXXX")
trap 'rm -r "$tmp"' EXIT

for step in "$folder"/step-*; do
    name=$(basename "$step")
    place="$tmp/store#$set@$((10#${name#step-}))"
    "$treering" ingest "$place" "$step" >/dev/null
    "$treering" export "$place" --to "$tmp/$name" >/dev/null
    diff -r "$step" "$tmp/$name"
    (cd "$step" && find . -type f -exec sha256sum {} +) | (cd "$tmp/$name" && sha256sum --quiet -c)
    for file in $(cd "$step" && find . -type f); do h5diff -q "$step/$file" "$tmp/$name/$file"; done
done
echo "$set: $(ls -d "$folder"/step-* | wc -l) steps came back byte for byte"

bash "$here/run.sh" "$venv" "$set" "$tmp/original" --restart "$folder/step-0005" --steps 8
bash "$here/run.sh" "$venv" "$set" "$tmp/exported" --restart "$tmp/step-0005" --steps 8
echo "$set: gone on from the original files and from exported ones:"
/usr/bin/python3 "$here/same.py" "$tmp/original" "$tmp/exported"
echo "$set: gone on from exported files, and never stopped:"
for step in step-0006 step-0007; do
    /usr/bin/python3 "$here/same.py" "$tmp/exported/$step" "$folder/$step"
done
