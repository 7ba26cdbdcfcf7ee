# Which Python a test takes that compares with packages. To be sourced; sets HOME, which Bazel does not hand on, to the user's.
#
#     python=$(python_with MODULES) || ...      MODULES: what it must import, "numpy, torch"
#
# The first that can: of ND_REFERENCE (a virtual environment's folder), of the benchmarks' rivals (bench/peers), of environment.sh,
# of the system.
export HOME=${HOME:-$(cd ~ && pwd)}

python_with() {
    local python cache=${XDG_CACHE_HOME:-$HOME/.cache}
    for python in ${ND_REFERENCE:+"$ND_REFERENCE/bin/python"} "$cache/ndarc-rivals/bin/python" "$cache/ndarc-reference/bin/python" python3; do
        if "$python" -c "import $1" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}
