#!/usr/bin/env bash
# killed_test.sh RANKS PROGRAM KILLS: a run of training whose ranks are killed again and again, at random moments and while the checkpoint is being written,
# and started again each time, ends with the same bits as one that nobody killed.
set -u
ranks=$1 program=$2 kills=$3
source tests/distributed/mpirun.sh

# One run to its end; fails when it does not come there.
run() { # FOLDER PLAN
    run_ranks "$ranks" "$program" "$1" "$2" >"$scratch/said" 2>&1
}

# Kills ranks of the run in a folder: after a random time, or while a file is being written there.
killer() { # FOLDER MANNER SEED
    python3 - "$1" "$ranks" "$2" "$3" <<'END'
import glob, os, random, signal, sys, time
folder, ranks, manner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
random.seed(int(sys.argv[4]))
names = [f"{folder}/process.{rank}" for rank in range(ranks)]
pids, begin = {}, time.time()
while len(pids) < ranks and time.time() - begin < 60:
    for rank, name in enumerate(names):
        if rank not in pids and os.path.exists(name) and (text := open(name).read()).endswith("\n"):
            pids[rank] = int(text)
time.sleep(random.random() * 0.3)
victims = random.choice([[0], [ranks - 1], list(range(ranks))])
if manner == "writing":
    victims = [0]
    begin = time.time()
    while not glob.glob(f"{folder}/.nd-*.tmp") and time.time() - begin < 2:
        pass
for rank in victims:
    try:
        os.kill(pids[rank], signal.SIGKILL)
    except (KeyError, ProcessLookupError):
        pass # it was faster
END
}

failed=0
for plan in whole sharded; do
    mkdir "$scratch/undisturbed" "$scratch/killed"
    run "$scratch/undisturbed" "$plan" || { cat "$scratch/said"; exit 1; }
    if grep -q "^SKIPPED" "$scratch/said"; then
        cat "$scratch/said"
        exit 0
    fi
    struck=0 amid=0 runs=0 finished=0 seed=$RANDOM
    echo "$plan: seed $seed"
    while [ "$finished" -eq 0 ] || [ "$struck" -lt "$kills" ]; do
        runs=$((runs + 1))
        if [ "$finished" -eq 1 ]; then # there are kills left: the same once more, from the beginning
            rm -f "$scratch"/killed/*
            finished=0
        fi
        manner=any
        [ $((runs % 2)) -eq 0 ] || manner=writing
        [ "$struck" -lt "$kills" ] || manner=none
        rm -f "$scratch"/killed/process.*
        [ "$manner" = none ] || killer "$scratch/killed" "$manner" $((seed + runs)) &
        killer=$!
        status=0
        run "$scratch/killed" "$plan" || status=$?
        [ "$manner" = none ] || wait "$killer"
        ! compgen -G "$scratch/killed/.nd-*.tmp" >/dev/null || amid=$((amid + 1))
        rm -f "$scratch"/killed/.nd-*.tmp
        if [ "$status" -eq 0 ]; then
            finished=1
            for ((rank = 0; rank < ranks; rank++)); do
                cmp "$scratch/undisturbed/end.$rank" "$scratch/killed/end.$rank" || failed=1
            done
            cmp "$scratch/undisturbed/checkpoint" "$scratch/killed/checkpoint" || failed=1
        elif [ "$manner" = none ] || grep -q "FAILED" "$scratch/said"; then
            cat "$scratch/said" # nobody killed it, or a rank that lived said something else
            failed=1
            break
        else
            struck=$((struck + 1))
        fi
    done
    echo "$plan: $struck kills, $amid of them while a checkpoint was written"
    [ "$amid" -gt 0 ] || failed=1
    rm -r "$scratch/undisturbed" "$scratch/killed"
    [ "$failed" -eq 0 ] || exit 1
done
