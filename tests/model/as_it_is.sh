#!/usr/bin/env bash
# as_it_is.sh SOURCE... -- FUNCTION... >TEXT
# The functions as they are in sources of the core outside the model: without what is there for the model alone, under other names
# (nd__lock_acquire becomes as_it_is_lock_acquire), and not static inline, so that a planted bug can take their place. Fails when one is
# not there.
set -eu
printf '#include "tests/model/as_it_is.h"\n\n'
sources=()
while [ "$1" != -- ]; do
    sources+=("$1")
    shift
done
shift
renamed=$(IFS='|'; printf '%s' "$*")
for name; do
    awk -v name="nd__$name" '
        !inside && $0 ~ "^[a-z].*[ *]" name "\\(.*\\{$" { inside = found = 1; sub(/^static inline /, "") }
        !inside { next }
        /^#ifdef ND_MODEL/ { model = 1; hidden = 1; next }
        /^#ifndef ND_MODEL/ { model = 1; hidden = 0; next }
        /^#else/ && model { hidden = !hidden; next }
        /^#endif/ && model { model = hidden = 0; next }
        !hidden { print }
        /^}/ { inside = 0; print "" }
        END { exit !found }' "${sources[@]}" ||
        { echo "$0: no nd__$name in ${sources[*]}" >&2; exit 1; }
done | sed -E -e 's/(spin <) 64;/\1 1;/' -e "s/\bnd__($renamed)\(/as_it_is_\1(/g"
