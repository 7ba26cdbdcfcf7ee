#!/usr/bin/env bash
# docs/cuda.md says of all that the backend does whether it was run on a GPU, run on the fake runtime, or compiled: every row of its
# tables, unless the paragraph in front says so of all of them or that nothing in them was measured, and every point of the sections "What
# exists" and "What to know". Whoever claims a GPU says which and when.
set -u
page=$TEST_SRCDIR/$TEST_WORKSPACE/docs/cuda.md

# One line for each row and point: the points' lines joined, their rows apart.
statements() {
    awk '
        function finish() { if (point != "") print point; point = "" }
        /^##/ { finish(); told = ($0 ~ /^## What (exists|to know)/) }
        /^ *\|[-|]*$/ { ruled = 1; next }
        /^ *\|/ { if (ruled && !said) print; ended = 1; next }
        { ruled = 0 }
        /^$/ { ended = 1; next }
        { paragraph = ended ? $0 : paragraph " " $0; ended = 0 }
        { said = paragraph ~ /\*compiled\*\):$|\*run on a GPU[^*]*20[0-9][0-9]\*\):$|\*\*No figure here was measured\.\*\*/ }
        /^- / { finish(); if (told) point = $0; next }
        /^  / { if (point != "") point = point " " $0; next }
        { finish() }
        END { finish() }
    ' "$1"
}

# Prints what of a page has none of the words; fails when there is such a thing, or nothing at all.
unmarked() {
    local all
    all=$(statements "$1")
    [ "$(wc -l <<<"$all")" -ge 20 ] || { echo "found next to no statements"; return 1; }
    ! grep -viE '\*(run on the fake runtime|compiled|run on a GPU[^*]*20[0-9][0-9])\.?\*' <<<"$all"
}

unmarked "$page" || { echo "the lines above say nothing of where they were run"; exit 1; }
# It must notice a row and a point without a word, and a GPU without a date.
for old in '| \*run on the fake runtime\* |/|  |' ' \*Run on a GPU ([^*]*20[0-9][0-9]\.\*$/' \
    '\*Run on a GPU ([^*]*20[0-9][0-9]\.\*$/*Run on a GPU.*'; do
    sed "s/$old/" "$page" >"$TEST_TMPDIR/page.md"
    ! cmp -s "$page" "$TEST_TMPDIR/page.md" || { echo "nothing to plant: $old"; exit 1; }
    ! unmarked "$TEST_TMPDIR/page.md" >"$TEST_TMPDIR/found" || { echo "not noticed: s/$old/"; exit 1; }
done
