#!/usr/bin/env bash
# misuse_test.sh FILE.c SAYS rejected|accepted COMPILER LEVELS FLAGS...
# Compiles FILE.c at each level of optimisation, first without and then with ND_TRACK_SITES, which puts a macro in front
# of every call. The diagnostics must match the regular expression SAYS, or be absent when SAYS is empty.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
file=$root/tests/misuse/$1
says=$2
verdict=$3
compiler=$4
levels=$5
shift 5

if ! command -v "$compiler" >/dev/null; then
    echo "SKIPPED: no $compiler"
    exit 0
fi

failures=0
for sites in -UND_TRACK_SITES -DND_TRACK_SITES=; do
    said=
    answer=accepted
    for level in $levels; do
        command=("$compiler" -std=gnu17 -Wall -Wextra -Wshadow -Wconversion "$level" "$@" "$sites" "-I$root/include"
            -c "$file" -o "$TEST_TMPDIR/object.o")
        said+=$("${command[@]}" 2>&1) || answer=rejected
    done
    if [ "$answer" = "$verdict" ]; then
        [ -z "$says" ] && [ -z "$said" ] && continue
        [ -n "$says" ] && grep -Eq -e "$says" <<<"$said" && continue
    fi
    failures=$((failures + 1))
    echo "${command[*]}"
    echo "was $answer and must be $verdict, saying ${says:-nothing}; it said:"
    echo "${said:-nothing}"
done
[ "$failures" -eq 0 ]
