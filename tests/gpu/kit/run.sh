#!/usr/bin/env bash
# Runs what the GPU kit holds, in parts of under nine minutes:
#
#     ./run.sh tests         the tests for a GPU, and the behaviours, with the CPU and with the GPU as their device
#     ./run.sh sanitizers    compute-sanitizer over them
#     ./run.sh figures       bench/gpu beside cuBLAS and PyTorch, gc_on_off, the workloads
#     ./run.sh build         everything that the others build when they need it
#     ./run.sh run NAME LIMIT COMMAND...     one step of one's own
#
# Each part writes PART.json and PART.log into KIT_OUT (default: results), the third a PART.tar.gz with the JSON and the charts of
# its programs. A step that fails, hangs or was not built does not keep the next from running. Exit status 1 when a step failed.
#
#     KIT_SECONDS=530     of one part
#     KIT_ONLY='A,B'      names of steps (with * and ?); the others are left out, and what only they need is not built
#     KIT_RESUME=1        goes on where the part's time was up in the call before, and with what was not built: what ran then is not
#                         run again, and its steps stay in PART.json
#     KIT_EXTRA_CC, KIT_EXTRA_NVCC     more flags for the compilers
set -u
results=$(realpath -m "${KIT_OUT:-results}")
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
kit=$PWD
part=${1:-}
limit=${KIT_SECONDS:-530}
setting=$(cat setting)
mkdir -p "$results"
log=$results/$part.log
rows=$results/.$part.rows # of steps that ran, as PART.json has them, a line each
begin=$SECONDS
separator=
failed=0
late=0

fake=
[ "$setting" != fake ] || fake=1

left() { echo $((limit - (SECONDS - begin))); }

json_text() { # a JSON string of standard input
    printf '"%s"' "$(tr -d '\000-\010\013-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' | sed ':a;N;$!ba;s/\n/\\n/g')"
}

open_json() {
    json=$results/$part.json
    {
        printf '{"part": "%s", "cuda": "%s", "machine": {"system": %s, "gpu": %s, "nvcc": %s, "compiler": %s, "cores": %s},\n "steps": [' \
            "$part" "$setting" "$(uname -sr | json_text)" \
            "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | json_text)" \
            "$("$(nvcc_path)" --version 2>/dev/null | tail -n 1 | json_text)" "$(${CC:-gcc} --version | head -n 1 | json_text)" "$(nproc)"
    } >"$json"
    [ -n "${KIT_RESUME:-}" ] || rm -f "$rows" "$log"
    touch "$rows" "$log"
    while IFS= read -r row; do
        printf '%s\n  %s' "$separator" "$row" >>"$json"
        separator=,
    done <"$rows"
}

close_json() {
    printf '\n ], "seconds": %d}\n' $((SECONDS - begin)) >>"$json"
    echo "$part: $((SECONDS - begin)) s, $failed failed; $json, $log"
    [ $late -eq 0 ] || echo "$part: $late steps had no time; KIT_RESUME=1 takes those"
}

# record NAME STATUS SECONDS [LOG]: one step. Cases are counted as cmocka prints them.
record() {
    local passed=0 red=0 names='' last='' row
    if [ $# -gt 3 ]; then
        passed=$(grep -a -c '^\[       OK \]' "$4")
        names=$(sed -n 's/^\[  FAILED  \] \([A-Za-z_]\)/\1/p' "$4" | sed 's/^[0-9]* test.*//' | sort -u | tr '\n' ' ')
        red=$(wc -w <<<"$names")
        last=$(tail -n 5 "$4" | cut -c 1-300)
    fi
    row=$(printf '{"step": %s, "status": "%s", "seconds": %s, "cases_passed": %s, "cases_failed": %s, "failed": %s, "last_lines": %s}' \
        "$(json_text <<<"$1")" "$2" "$3" "$passed" "$red" "$(json_text <<<"${names% }")" "$(json_text <<<"$last")")
    printf '%s\n  %s' "$separator" "$row" >>"$json"
    separator=,
    if [ "$2" = "no time" ]; then
        late=$((late + 1))
    elif [ $# -gt 3 ] && [ "$2" != "not built" ]; then
        echo "$row" >>"$rows"
    fi
    printf '%-12s %4d s  %s%s\n' "$2" "$3" "$1" "${names:+  ($names)}"
}

# wanted NAME: by KIT_ONLY.
wanted() {
    local pattern
    [ -n "${KIT_ONLY:-}" ] || return 0
    while IFS= read -r pattern; do
        # shellcheck disable=SC2053 # a pattern
        [[ $1 == $pattern ]] && return 0
    done < <(tr ',' '\n' <<<"$KIT_ONLY")
    return 1
}

# ran NAME: in the call that this one resumes.
ran() {
    [ -n "${KIT_RESUME:-}" ] && grep -qF "{\"step\": $(json_text <<<"$1"), " "$rows"
}

# step NAME LIMIT COMMAND...: runs it for at most LIMIT seconds and at most what the part has left.
step() {
    local name=$1 most=$2 from=$SECONDS status verdict file=$results/.step
    shift 2
    if [ "$(left)" -lt 5 ]; then
        record "$name" "no time" 0
        return 0
    fi
    [ "$most" -lt "$(left)" ] || most=$(left)
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    timeout -k 5 "$most" "$@" >"$file" 2>&1 </dev/null
    status=$?
    case $status in
    0) verdict=passed ;;
    124 | 137) verdict="timed out" ;;
    126 | 127) verdict="not built" ;;
    *) verdict=failed ;;
    esac
    [ $status -ne 0 ] || ! grep -a -q '^SKIPPED' "$file" || verdict=skipped
    [ $status -eq 0 ] || failed=$((failed + 1))
    record "$name" "$verdict" $((SECONDS - from)) "$file"
    printf 'status %d (%s), %d s\n' $status "$verdict" $((SECONDS - from)) >>"$log"
    # Its end says what went wrong; the whole would not fit where there are many.
    { head -c 100000 "$file"; [ "$(stat -c %s "$file")" -le 100000 ] || { printf '\n[...]\n'; tail -c 100000 "$file"; }; } >>"$log"
    rm -f "$file"
}

nvcc_path() { echo "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc"; }

have_header() { echo "#include <$1>" | ${CC:-gcc} -E -include stdio.h - >/dev/null 2>&1; }

# The prebuilt programs where they start here; else, and for those that are not there, what make builds.
starts() { [ -x "$1" ] && ! ldd "$1" 2>&1 | grep -q 'not found'; }

# build PROGRAM...: all at once, on all cores, going on after an error.
declare -A asked_for=()
build() {
    local program missing=()
    for program in "$@"; do
        [ -z "${asked_for[$program]:-}" ] || continue
        asked_for[$program]=1
        starts "prebuilt/$program" || missing+=("out/$program")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local zlib=0 jpeg=0
    have_header zlib.h && zlib=1
    have_header jpeglib.h && jpeg=1
    step "build of ${#missing[@]} programs" "$limit" make -s -j"$(nproc)" -k CC="${CC:-gcc}" CUDA="${CUDA_PATH:-/usr/local/cuda}" ZLIB=$zlib \
        JPEG=$jpeg EXTRA_CC="${KIT_EXTRA_CC:-}" EXTRA_NVCC="${KIT_EXTRA_NVCC:-}" "${missing[@]}"
}

path_of() { if starts "prebuilt/$1"; then echo "$kit/prebuilt/$1"; else echo "$kit/out/$1"; fi; }

# Steps of the part, in their order: name, limit, and what is run as lines: VARIABLE=VALUE…, a program of the kit, its arguments.
planned=()
plan() {
    wanted "$1" && ! ran "$1" || return 0
    planned+=("$1"$'\n'"$2"$'\n'"$(printf '%s\n' "${@:3}")")
}

# Builds what the planned steps want, and takes them one after the other. Words before the program, such as a sanitizer's: `before`.
before=()
take_steps() {
    local -a programs=() lines command
    local text i
    [ ${#planned[@]} -gt 0 ] || return 0
    for text in "${planned[@]}"; do
        mapfile -t lines <<<"$text"
        i=2
        while [[ ${lines[i]} == *=* ]]; do i=$((i + 1)); done
        [[ " ${programs[*]} " == *" ${lines[i]} "* ]] || programs+=("${lines[i]}")
    done
    [ -z "$fake" ] || programs+=(tests/cudart/libcublas.so)
    build "${programs[@]}"
    for text in "${planned[@]}"; do
        mapfile -t lines <<<"$text"
        i=2
        while [[ ${lines[i]} == *=* ]]; do i=$((i + 1)); done
        command=(env "${lines[@]:2:i-2}" "${before[@]}" "$(path_of "${lines[i]}")" "${lines[@]:i+1}")
        step "${lines[0]}" "${lines[1]}" "${command[@]}"
    done
    planned=()
}

# Those behaviours whose tensors may be anywhere. The others name the devices that they use, or are of the core, which knows none.
anywhere=(autograd_cycles callbacks dead scoped tensors view_uses)

part_tests() {
    local name
    for name in operations gradients rows joins matmul device views out streams training_graph; do
        plan "${name}_test" 200 "tests/gpu/${name}_test"
    done
    if [ -z "$fake" ]; then
        plan "operations_test without cuBLAS" 100 ND_CUBLAS=/nonexistent tests/gpu/operations_test
        plan "matmul_test without cuBLAS" 100 ND_CUBLAS=/nonexistent tests/gpu/matmul_test
    fi
    for name in "${anywhere[@]}"; do
        plan "behaviour $name on the GPU" 60 ND_TEST_DEVICE=cuda "tests/behaviour/$name"
    done
    for name in $(grep '^tests/behaviour/' programs); do
        plan "behaviour ${name##*/}" 60 "$name"
    done
    take_steps
}

part_sanitizers() {
    local tool program device sanitizer=${KIT_SANITIZER:-}
    [ -n "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer || echo "${CUDA_PATH:-/usr/local/cuda}/bin/compute-sanitizer")
    if [ ! -x "$sanitizer" ]; then
        record "$sanitizer" "not found" 0
        return
    fi
    # The shortest first; the longest, operations_test and views_test, may be cut off in the middle, and what they said until then counts.
    for program in tests/behaviour/callbacks tests/gpu/{out,joins,rows,training_graph,streams,matmul,gradients,operations,views}_test; do
        device=
        [[ $program != tests/behaviour/* ]] || device=cuda
        for tool in memcheck "memcheck --track-stream-ordered-races all" racecheck synccheck initcheck; do
            plan "$tool ${program##*/}" 90 "ND_TEST_DEVICE=$device" "$program"
            # shellcheck disable=SC2206 # a tool and its options
            before=("$sanitizer" --error-exitcode 9 --target-processes all --tool $tool)
            take_steps
        done
    done
}

part_figures() {
    local files=$results/.figures prefix name seconds=25
    local -a small=(--seconds 90) chart=() few=()
    mkdir -p "$files"
    # The Python that has PyTorch is the rivals' (bench/peers).
    if [ -z "${ND_RIVALS:-}" ] && prefix=$(python3 -c 'import sys, torch; print(sys.prefix)' 2>/dev/null); then
        export ND_RIVALS=$prefix
    fi
    if [ -n "$fake" ]; then
        small=(--epochs 3 --samples 600)
        few=(--steps 2 --no-peer)
        seconds=100000
    fi
    ! command -v gnuplot >/dev/null || chart=(--plot "$files/gc_on_off.png")
    plan "bench gpu" 220 bench/gpu --json "$files/gpu.json"
    [ -n "$fake" ] || plan "bench gpu, own products" 60 ND_CUBLAS=/nonexistent bench/gpu --only products --json "$files/own_products.json"
    plan "gc_on_off" ${fake:+4}120 bench/gc_on_off --device cuda "${small[@]}" --json "$files/gc_on_off.json" "${chart[@]}"
    for name in rnn_gru pipeline objects minilm cnn transformer wgan_gp serve large_images rnn_lstm long; do
        plan "workload $name" 60 bench/workloads --only "$name" --device cuda --seconds $seconds "${few[@]}" \
            --json "$files/workload_$name.json"
    done
    take_steps
    tar -czf "$results/$part.tar.gz" -C "$files" . && rm -rf "$files"
}

if [ -n "$fake" ]; then
    ND_CUBLAS=$(path_of tests/cudart/libcublas.so)
    export ND_CUBLAS
fi
# A device that is not there is a failure; libraries of the machine that built the programs lie beside them.
export ND_REQUIRE_GPU=1 LD_LIBRARY_PATH=$kit/prebuilt${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
case $part in
tests | sanitizers | figures)
    open_json
    "part_$part"
    close_json
    ;;
build)
    open_json
    mapfile -t all <programs
    build "${all[@]}"
    close_json
    ;;
run)
    open_json
    step "${@:2}"
    close_json
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
[ $failed -eq 0 ]
