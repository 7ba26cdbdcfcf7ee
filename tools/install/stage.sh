#!/usr/bin/env bash
# stage.sh FOLDER LIBRARY FLAGS ARCHIVES MPI_FLAGS --objects FILES... --distributed FILES... --headers FILES... --documents FILES...
#     --beside FILES...
# Lays out what install.sh copies: the build's half of an install, which needs binutils and knows nothing of prefixes.
#
# libnd.a is one object. A program that links it has the whole library, backends included (an archive's members are left out
# while nothing but a weak symbol asks for them), and names that are internal to the library stay inside it. libnd_distributed.a is
# made in the same way, where there is an MPI.
set -eu
folder=$1
library=$2
flags=$3
archives=$4
mpi_flags=$5
shift 5
declare -A files=([beside]= [distributed]=)
for argument in "$@"; do
    case $argument in
    --objects | --distributed | --headers | --documents | --beside) kind=${argument#--} ;;
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

# archive NAME OBJECTS: libNAME.a with NAME.o.
archive() {
    printf %s "$2" >"$folder/objects"
    ld -r -o "$folder/$1.o" "@$folder/objects"
    objcopy --localize-hidden --strip-debug "$folder/$1.o"
    ar -rcsD "$folder/lib/lib$1.a" "$folder/$1.o"
    rm "$folder/$1.o" "$folder/objects"
}
archive nd "${files[objects]}"

# Archives (CUDA's runtime) stay where they are.
for archive in $archives; do
    archive=$(readlink -f "$archive")
    flags="-L${archive%/*} -l:${archive##*/} $flags"
done
printf '%s\n' "$version" >"$folder/version"
printf '%s\n' "$flags" >"$folder/flags"
if [ -n "${files[distributed]}" ]; then
    archive nd_distributed "${files[distributed]}"
    printf '%s\n' "$mpi_flags $flags" >"$folder/distributed_flags"
fi
