#!/usr/bin/env bash
# stage.sh FOLDER LIBRARY FLAGS ARCHIVES --objects FILES... --headers FILES... --documents FILES... --beside FILES...
# Lays out what install.sh copies: the build's half of an install, which needs binutils and knows nothing of prefixes.
#
# libnd.a is one object. A program that links it has the whole library, backends included (an archive's members are left out
# while nothing but a weak symbol asks for them), and names that are internal to the library stay inside it.
set -eu
folder=$1
library=$2
flags=$3
archives=$4
shift 4
declare -A files=([beside]=)
for argument in "$@"; do
    case $argument in
    --objects | --headers | --documents | --beside) kind=${argument#--} ;;
    *) files[$kind]+="$argument"$'\n' ;;
    esac
done

mkdir -p "$folder"/{include,lib/.debug,doc}
while read -r header; do
    mkdir -p "$folder/include/$(dirname "${header##*include/}")"
    cp -L "$header" "$folder/include/${header##*include/}"
done < <(printf %s "${files[headers]}")
while read -r document; do
    cp -L "$document" "$folder/doc/"
done < <(printf %s "${files[documents]}")

number() {
    sed -nE "s/^#define ND_VERSION_$1 ([0-9]+).*/\1/p" "$folder/include/nd/version.h"
}
version=$(number MAJOR).$(number MINOR).$(number PATCH)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "<nd/version.h> gives '$version' as the version" >&2; exit 1; }
name=libnd.so.$version

objcopy --only-keep-debug "$library" "$folder/lib/.debug/$name.debug"
(
    # The link holds the file's name and checksum; debuggers look in .debug beside the library.
    source=$(readlink -f "$library")
    cd "$folder/lib/.debug"
    objcopy --strip-debug --add-gnu-debuglink="$name.debug" "$source" "../$name"
)

while read -r file; do
    cp -L "$file" "$folder/lib/"
done < <(printf %s "${files[beside]}")

printf %s "${files[objects]}" >"$folder/objects"
ld -r -o "$folder/nd.o" "@$folder/objects"
objcopy --localize-hidden --strip-debug "$folder/nd.o"
ar -rcsD "$folder/lib/libnd.a" "$folder/nd.o"
rm "$folder/nd.o" "$folder/objects"

# Archives (CUDA's runtime) stay where they are.
for archive in $archives; do
    archive=$(readlink -f "$archive")
    flags="-L${archive%/*} -l:${archive##*/} $flags"
done
printf '%s\n' "$version" >"$folder/version"
printf '%s\n' "$flags" >"$folder/flags"
