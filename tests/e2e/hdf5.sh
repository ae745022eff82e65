#!/bin/bash
# Checkpoints that HDF5 1.10 and 1.14 have written, read by the HDF5 of this machine.
. "$(dirname "$0")/common.bash"
golden=tests/golden/checkpoint
config=$golden/config.ini
wanted="fingerprint fd51f1d4e20b4f91d5498a81e16a191b step 2"

for version in 1.10 1.14; do
    one=$t/hdf5-$version # what goes on from it leaves its proof there
    cp -r $golden/hdf5-$version "$one"
    out=$t/verify.out
    run "$weft" verify "$one"
    passes "HDF5 $version: verify" ended 0 good
    run "$weft" verify --deep "$one"
    passes "HDF5 $version: verify --deep" ended 0 "8 files" "114 datasets" "2328 cells" good
    run "$weft" inspect "$one"
    passes "HDF5 $version: its fingerprint" test "$(tail -n 1 "$out")" = "$wanted"
    train "loaded $version" one --resume "$one" --stop-at 2
    passes "HDF5 $version: is loaded" test "$(fingerprint "loaded $version")" = "$wanted"
    train "continued $version" one --resume "$one"
    passes "HDF5 $version: is continued" ended 0 "resuming from $one at step 2" " step 4"
    run "$weft" reshard "$one" --tensor 2 --data 1 --out "$t/reshard $version"
    passes "HDF5 $version: is resharded" ended 0 "$wanted"
    cp -r $golden/hdf5-$version "$t/damaged-$version"
    flip "$t/damaged-$version/shard-t001-d000.h5" /moment2/model.layers.0.mlp.gate_proj.weight
    run "$weft" verify "$t/damaged-$version"
    passes "HDF5 $version: damage is found" ended 1 \
        "shard-t001-d000.h5: dataset moment2/model.layers.0.mlp.gate_proj.weight: damaged"
done
passes "both go on alike" test "$(fingerprint "continued 1.10")" = "$(fingerprint "continued 1.14")"
run "$weft" diff $golden/hdf5-1.10 $golden/hdf5-1.14
passes "diff: equal" ended 0 "fingerprint equal" "equal: 33 arrays, 2328 elements"
passes "the versions write the same bytes" diff -r -x manifest.json $golden/hdf5-1.1{0,4}

# The same state, written again by this machine's HDF5 on the same grid and on another and back.
run "$weft" reshard $golden/hdf5-1.10 --tensor 3 --data 2 --out "$t/again"
run "$weft" reshard "$t/reshard 1.14" --tensor 3 --data 2 --out "$t/back"
for copy in again back; do
    passes "so does this machine's, $copy" \
        diff -r -x manifest.json $golden/hdf5-1.10 "$t/$copy/step-00000002"
done
finish
