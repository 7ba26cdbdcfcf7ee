#!/usr/bin/env bash
# installed_test.sh TREE PROGRAM: what //:install writes builds the page's example with gcc and pkg-config and with CMake, and two ranks of
# it add up. No name that is internal to the library leaves the archive.
set -eu
tree=$PWD/$1 code=$PWD/$2
source tests/distributed/mpirun.sh
[ -e "$tree/lib/libnd_distributed.a" ] || { echo "SKIPPED: built without MPI"; exit 0; }
unset BUILD_WORKING_DIRECTORY
prefix="$scratch/moved here"
"$PWD/tools/install/install.sh" "$tree" "--prefix=$scratch/first"
mv "$scratch/first" "$prefix"

# adds_up PROGRAM: as two ranks, and as one that nothing started.
adds_up() {
    run_ranks 2 "$1" >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
    grep -qF "[3., 3., 3.]" "$scratch/said" || { echo "$1 as two ranks:"; cat "$scratch/said"; exit 1; }
    "$1" | grep -qF "[1., 1., 1.]" || { echo "$1 by itself does not print the sum"; exit 1; }
    if readelf -d "$1" | grep 'NEEDED.*libnd'; then echo "$1 wants a library of ndarc's beside it" && exit 1; fi
}

internal=$(nm --extern-only --defined-only "$prefix/lib/libnd_distributed.a" | awk 'NF == 3 { print $3 }' | grep -v '^nd_' || true)
[ -z "$internal" ] || { echo "libnd_distributed.a shows $internal"; exit 1; }

if command -v pkg-config >/dev/null; then
    ln -s "$prefix" "$scratch/plain" # no space in its name
    export PKG_CONFIG_PATH=$scratch/plain/lib/pkgconfig
    # shellcheck disable=SC2046
    cc "$code" $(pkg-config --cflags --libs nd_distributed) -o "$scratch/gcc"
    adds_up "$scratch/gcc"
else
    echo "SKIPPED: no pkg-config"
fi

if command -v cmake >/dev/null; then
    mkdir "$scratch/project"
    cp -L "$code" "$scratch/project/ranks.c"
    cat >"$scratch/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(ranks C)
find_package(nd REQUIRED)
add_executable(ranks ranks.c)
target_link_libraries(ranks nd::distributed)
END
    cmake -S "$scratch/project" -B "$scratch/cmake" "-DCMAKE_PREFIX_PATH=$prefix" >/dev/null
    cmake --build "$scratch/cmake" >/dev/null
    adds_up "$scratch/cmake/ranks"
else
    echo "SKIPPED: no cmake"
fi
