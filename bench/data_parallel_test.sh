#!/usr/bin/env bash
# data_parallel_test.sh DATA_PARALLEL SCALING: what they promise of their figures, or in a sentence why there are none.
set -eu
data_parallel=$1 scaling=$2
figures=$TEST_TMPDIR/figures.json
# mpirun makes paths of it, for sockets, whose names are short.
export TMPDIR=/tmp ND_RIVALS=/none
"$data_parallel" --seconds 0.1 --json "$figures" >"$TEST_TMPDIR/said"
cat "$TEST_TMPDIR/said"
[ -e "$figures" ] || exec grep -q "^SKIPPED: .*\\.$" "$TEST_TMPDIR/said"
python3 - "$figures" <<'END'
import json, sys
figures = json.load(open(sys.argv[1]))
assert figures["bench"] == "data_parallel" and figures["machine"]["cores"] >= 1
keys = ["T23_us_%s_%s" % (model, ranks) for model in ("mlp", "cnn") for ranks in ("1_rank", "2_ranks", "4_ranks")]
keys += ["T23_percent_hidden_memory", "T23_percent_hidden_link", "T23_percent_hidden_busy", "T23_percent_processor"]
keys += ["T23_%sgbps_%s" % (side, size) for side in ("", "rival_mpi_") for size in ("64k", "1m", "4m", "25m")]
keys += ["T23_%sgbps_%s_%s_%d_ranks" % (side, kind, size, ranks) for side in ("", "rival_mpi_") for size in ("64k", "1m", "4m", "25m")
         for kind in ("broadcast", "all_gather", "reduce_scatter") for ranks in (2, 4)]
missing = [key for key in keys if not figures["metrics"].get(key, 0) > 0]
assert not missing, missing
END
"$scaling" --seconds 0.1 --json "$figures" >"$TEST_TMPDIR/said"
cat "$TEST_TMPDIR/said"
python3 - "$figures" <<'END'
import json, sys
metrics = json.load(open(sys.argv[1]))["metrics"]
for link in ("memory", "link"):
    for way in ("ring", "halving", "doubling", "chosen"):
        shares = [metrics["T23_percent_%s_%s_%d_ranks" % (link, way, 1 << run)] for run in range(11)]
        assert shares[0] == 100 and all(0 < share <= 100.001 for share in shares), shares
    assert metrics["T23_ranks_" + link] >= 1
for what in ("2_after", "2_overlap", "2_link_after", "2_link_overlap", "4_after", "4_overlap"):
    assert metrics["T23_simulated_us_" + what] > 0 and metrics["T23_measured_us_" + what] > 0
END
grep -q "nothing hides" "$TEST_TMPDIR/said"
ND_MPIRUN=/none/mpirun "$data_parallel" | grep -q "^SKIPPED: "
