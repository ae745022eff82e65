#!/bin/bash
# launch/elastic: a run that loses ranks, or mpirun itself, ends like one that never did; what would
# fail again is not tried for ever; a stop stays a stop.
. "$(dirname "$0")/common.bash"
. tests/e2e/background.bash
program=$weft_faults

# A program that goes wrong while its run is young, told by the run's newest checkpoint at the start:
# lines `CHECKPOINT FAULT` of the file $FAULTS, CHECKPOINT being a step or `none`; with the fault
# `damage` the checkpoint loses its manifest before the ranks meet.
cat >"$t/faulty" <<'END'
#!/bin/bash
newest=$(ls -d "$RUN"/step-* 2>/dev/null | tail -n 1)
newest=${newest##*/step-}
faults=()
while read -r checkpoint fault; do
    [ "$checkpoint" = "${newest:-none}" ] || continue
    case $fault in
    damage) [ "$OMPI_COMM_WORLD_RANK" -ne 0 ] || : >"$RUN/step-$newest/manifest.json" ;;
    *) faults+=(--inject "$fault") ;;
    esac
done <"$FAULTS"
exec "$PROGRAM" "$@" "${faults[@]}"
END
chmod +x "$t/faulty"
export FAULTS=$t/faults PROGRAM=$program

# elastic NAME [OPTIONS...] -- [TRAIN OPTIONS...]: in the background; the faults come on stdin.
elastic() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    cat >"$FAULTS"
    export RUN=$t/$name
    WEFT_MPIRUN="--timeout $limit" background "$name" launch/elastic --program "$t/faulty" \
        "${options[@]}" "$config" --set run.dir="$RUN" --set checkpoint.every=4 \
        --set checkpoint.async=false "$@"
}

train whole one

elastic kills -n 3 -- --tp 3 --dp 1 <<'END'
none kill@rank=1,step=5
00000004 kill@step=13,phase=backward
00000012 damage
END
ended_by kills
passes "two kills and a damaged checkpoint: the run" same_run whole kills
passes "two kills: said" ended 0 "SIGKILL (code 137); going on from step 4 on 3 ranks" \
    "going on from step 12 on 3 ranks" "step-00000012: skipped" "step-00000008 at step 8"

elastic shrinks -n 2 --shrink -- <<'END'
none fail@rank=1,step=1
END
ended_by shrinks
passes "a failure before the first checkpoint: the run" same_run whole shrinks
passes "a failure before the first checkpoint: said" ended 0 "a rank failed (code 4)" \
    "going on from the beginning on 1 rank (restart 1 of 3 without a newer checkpoint)"

elastic hopeless -n 2 --attempts 1 -- <<'END'
none kill@rank=1,step=1
END
ended_by hopeless
passes "a kill each time" ended 4 "no newer checkpoint in 1 restart" "giving up"

# mpirun is killed, then a stop is asked for.
elastic stopped -n 2 -- <<'END'
none delay@phase=optimizer,times=0,seconds=0.05
END
wait_for steps_done stopped 5
kill -KILL "$(mpirun_pid)"
wait_for grep -q "going on" "$out"
echo "00000004 delay@phase=optimizer,times=0,seconds=0.1" >"$FAULTS"
wait_for steps_done stopped 7
kill -INT "$launcher"
ended_by stopped
passes "a stop" ended 0 "INT: saving and stopping" "--resume auto continues"
passes "a stop: one restart" test "$(grep -c "going on" "$out")" -eq 1
elastic stopped -n 3 -- --resume auto </dev/null
ended_by stopped
passes "a stop: goes on" same_run whole stopped

# What would come again.
elastic usage -n 2 -- --set optim.lt=1 </dev/null
ended_by usage
passes "a bad key" ended 2 "optim.lr"
passes "a bad key: no restart" silent_about "going on"
elastic input -n 2 -- --set data.train="$t/nothing" </dev/null
ended_by input
passes "a missing text" ended 3 "nothing"
passes "a missing text: no restart" silent_about "going on"
elastic no-ranks -n 2 --min-ranks 3 -- </dev/null
ended_by no-ranks
passes "fewer ranks than wanted" ended 4 "2 ranks are left, --min-ranks is 3"
finish
