#!/usr/bin/env bash
# plant.sh CHANGE SOURCE >CHANGED
# Applies a planted bug to a copy of a source file. A change is a text of blocks
#
#   <<<<
#   lines as they are in the source, exactly once
#   ====
#   lines to have instead
#   >>>>
#
# Other lines are comments. Fails when a block's lines are not there: then the core has changed, and
# the bug must be planted anew.
set -eu
text=$(cat "$2"; printf .)
text=${text%.}
old= new= part=
while IFS= read -r line; do
    case $part$line in
    '<<<<') part=o old= new= ;;
    'o====') part=n ;;
    'n>>>>')
        part=
        rest=${text#*"$old"}
        if [ "$rest" = "$text" ] || [ "${rest#*"$old"}" != "$rest" ]; then
            printf '%s: these lines must be in %s once:\n%s' "$1" "$2" "$old" >&2
            exit 1
        fi
        text=${text%%"$old"*}$new$rest
        ;;
    o*) old+=$line$'\n' ;;
    n*) new+=$line$'\n' ;;
    esac
done <"$1"
printf %s "$text"
