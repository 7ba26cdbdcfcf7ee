#!/usr/bin/env bash
# install_test.sh TREE: what //:install writes works from wherever it is moved to: the README's example is built with gcc and
# pkg-config, with CMake and with Meson, shared and static, and prints what the README says.
set -u
tree=$TEST_SRCDIR/$TEST_WORKSPACE/$1
root=$TEST_SRCDIR/$TEST_WORKSPACE
install=$root/tools/install/install.sh
scratch=$TEST_TMPDIR
failures=0
export HOME=$scratch
unset BUILD_WORKING_DIRECTORY

fail() {
    printf '%s\n' "$@"
    failures=$((failures + 1))
}

# must NAME COMMAND...: succeeds; says what it said when it does not.
must() {
    local name=$1 said
    shift
    said=$("$@" 2>&1) || { fail "$name: $*" "$said"; return 1; }
}

# runs NAME PROGRAM: prints what the README says and leaves nothing.
runs() {
    if ! ND_LEAK_CHECK=1 "$2" >"$scratch/printed" 2>"$scratch/errors"; then
        fail "$1: $2 fails" "$(cat "$scratch/errors")"
    fi
    diff "$root/docs/examples/cycle.expected" "$scratch/printed" || fail "$1 prints something else"
    grep -qx "ndarc: no leaks" "$scratch/errors" || fail "$1 leaks"
}

# links NAME PROGRAM yes|no: whether the program needs the shared library.
links() {
    local answer=no
    readelf -d "$2" | grep -q 'NEEDED.*libnd\.so\.[0-9]' && answer=yes
    [ "$answer" = "$3" ] || fail "$1: needs libnd.so: $answer"
}

# ------------------------------------------------------------------------------------------------------------ the files
must "install" "$install" "$tree" "--prefix=$scratch/first"
must "into a package" "$install" "$tree" --prefix=/usr "--destdir=$scratch/package" --libdir=lib/x86_64-linux-gnu
(cd "$scratch" && must "a relative prefix" "$install" "$tree" --prefix=relative)
[ -e "$scratch/relative/include/nd/nd.h" ] || fail "--prefix=relative is not where the caller is"
for wrong in "" "--prefix=" "--prefix=/x --libdir=/lib" "--prefix=/x --libdir=../lib" "--prefix=/x extra"; do
    # shellcheck disable=SC2086
    "$install" "$tree" $wrong >/dev/null 2>&1 && fail "install $wrong is accepted"
done
package=$scratch/package/usr
grep -rl "$scratch" "$scratch/package" && fail "a file says where it was installed"
[ -e "$package/lib/x86_64-linux-gnu/pkgconfig/nd.pc" ] || fail "--libdir is not obeyed"

version=$(cat "$tree/version")
moved="$scratch/moved here"
mv "$scratch/first" "$moved"
for file in include/nd/nd.h include/nd/nd.hpp include/nd/detail/calls.h lib/libnd.a "lib/libnd.so.$version" \
    lib/libnd.so "lib/libnd.so.${version%%.*}" "lib/.debug/libnd.so.$version.debug" lib/pkgconfig/nd.pc \
    lib/cmake/nd/nd-config.cmake lib/cmake/nd/nd-config-version.cmake share/doc/nd/LICENSE share/doc/nd/CHANGELOG.md; do
    [ -e "$moved/$file" ] || fail "$file is missing"
done
# libnd.so with CUDA has the runtime beside it, and nothing else of NVIDIA's.
runtime=$(readelf -dW "$moved/lib/libnd.so" | sed -nE 's/.*NEEDED.*\[(libnd_.*)\]/\1/p')
for file in "$moved"/lib/*.so.*; do
    case ${file##*/} in
    libnd.so.* | "$runtime") ;;
    *) fail "$file is installed" ;;
    esac
done
[ -z "$runtime" ] || [ -f "$moved/lib/$runtime" ] || fail "$runtime is missing"
sections=$(readelf -SW "$moved/lib/.debug/libnd.so.$version.debug")
grep -q '\.debug_info' <<<"$sections" || fail "the debug file has no debug information"
sections=$(readelf -SW "$moved/lib/libnd.so.$version")
grep -q '\.gnu_debuglink' <<<"$sections" || fail "libnd.so does not name its debug file"
grep -q '\.debug_info' <<<"$sections" && fail "libnd.so has debug information in it"
internal=$(nm --extern-only --defined-only "$moved/lib/libnd.a" | awk 'NF == 3 { print $3 }' | grep -v '^nd_')
[ -z "$internal" ] || fail "libnd.a shows" "$(head -n 5 <<<"$internal")"
# said WORD: the files that have that word, in names or text.
said() {
    local file
    for file in "$moved/lib/libnd.a" "$moved/lib/libnd.so.$version" "$moved/lib/.debug/libnd.so.$version.debug"; do
        { nm --debug-syms "$file" 2>/dev/null; strings "$file"; } | grep -cE "(^|[^a-z])$1([^a-z]|\$)" >/dev/null &&
            echo "$file"
    done
    grep -Rli "$1" "$moved/include"
}
[ -n "$(said cuda)" ] || fail "the search for words finds none"
tests_device=$(said fake)
[ -z "$tests_device" ] || fail "the device of the tests is in" "$tests_device"

# Some tools cannot cope with a space in a folder's name: they get the package, through another name.
plain=$scratch/plain
mv "$package" "$plain"
library=$plain/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$library

# ------------------------------------------------------------------------------------------------------- gcc, pkg-config
example=$root/docs/examples/cycle.c
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$library/pkgconfig
    [ "$(pkg-config --modversion nd)" = "$version" ] || fail "pkg-config: another version"
    # shellcheck disable=SC2046
    must "gcc, shared" cc "$example" $(pkg-config --cflags --libs nd) -o "$scratch/shared" &&
        runs "gcc, shared" "$scratch/shared" && links "gcc, shared" "$scratch/shared" yes
    # shellcheck disable=SC2046
    must "gcc, static" cc "$example" $(pkg-config --cflags nd) -l:libnd.a $(pkg-config --static --libs nd) \
        -Wl,--as-needed -o "$scratch/static" && runs "gcc, static" "$scratch/static"
    links "gcc, static" "$scratch/static" no
    # Every example, by the command that the page has for them.
    command=$(sed -n 's/^    cc hello\.c \(.*[^ ]\)   with an installed library.*/\1/p' "$root/docs/examples.md")
    [ -n "$command" ] || fail "docs/examples.md: no command for an installed library"
    for each in "$root"/docs/examples/*.c; do
        case $each in */semantic_search*) continue ;; esac # has a model beside it
        must "docs/examples.md's command" sh -c "cc \"\$1\" $command -o \"\$2\"" sh "$each" "$scratch/example"
    done
else
    echo "SKIPPED: no pkg-config"
fi
# With nothing said of where libraries are, neither to the linker nor to the loader.
cat >"$scratch/open.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))
        return 0;
    puts(dlerror());
    return 1;
}
END
must "a program that calls dlopen" cc "$scratch/open.c" -o "$scratch/open" -ldl &&
    must "dlopen" env -u LD_LIBRARY_PATH "$scratch/open" "$moved/lib/libnd.so"
for linker in bfd gold lld; do
    command -v "ld.$linker" >/dev/null || continue
    must "gcc, $linker" env -u LD_LIBRARY_PATH cc "-fuse-ld=$linker" "$example" "-I$moved/include" "-L$moved/lib" -lnd \
        "-Wl,-rpath,$moved/lib" -o "$scratch/linked" &&
        LD_LIBRARY_PATH='' runs "gcc, $linker" "$scratch/linked"
    # A program whose folder is told to the loader alone.
    must "gcc, $linker, no rpath" env -u LD_LIBRARY_PATH cc "-fuse-ld=$linker" "$example" "-I$moved/include" "-L$moved/lib" \
        -lnd -o "$scratch/linked" &&
        LD_LIBRARY_PATH=$moved/lib runs "gcc, $linker, no rpath" "$scratch/linked"
done
must "gcc, from a folder with a space" cc "$example" "-I$moved/include" "$moved/lib/libnd.so" -o "$scratch/spaced" &&
    LD_LIBRARY_PATH=$moved/lib runs "gcc, from a folder with a space" "$scratch/spaced"
if command -v c++ >/dev/null; then
    printf '#include <nd/nd.hpp>\nint main() { return !nd::tensor{nd_ones(ND_SHAPE(2), ND_F32)}; }\n' >"$scratch/owner.cc"
    must "c++" c++ -std=c++17 "$scratch/owner.cc" "-I$moved/include" "$moved/lib/libnd.so" -o "$scratch/owner" &&
        LD_LIBRARY_PATH=$moved/lib must "c++" "$scratch/owner"
fi

# ---------------------------------------------------------------------------------------------------------------- CMake
mkdir -p "$scratch/project" && cp -L "$example" "$scratch/project/cycle.c"
if command -v cmake >/dev/null; then
    cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(example C)
find_package(nd ${version%.*} REQUIRED)
add_executable(shared cycle.c)
target_link_libraries(shared nd::nd)
add_executable(static cycle.c)
target_link_libraries(static nd::static)
END
    for prefix in "$plain" "$moved"; do
        rm -rf "$scratch/cmake"
        must "cmake" cmake -S "$scratch/project" -B "$scratch/cmake" "-DCMAKE_PREFIX_PATH=$prefix" &&
            must "cmake" env -u LD_LIBRARY_PATH cmake --build "$scratch/cmake" || continue
        LD_LIBRARY_PATH='' runs "cmake, shared" "$scratch/cmake/shared"
        runs "cmake, static" "$scratch/cmake/static"
        links "cmake, shared" "$scratch/cmake/shared" yes
        links "cmake, static" "$scratch/cmake/static" no
    done
    sed -i "s/find_package(nd .*/find_package(nd $((${version%%.*} + 1)).0 REQUIRED)/" "$scratch/project/CMakeLists.txt"
    cmake -S "$scratch/project" -B "$scratch/newer" "-DCMAKE_PREFIX_PATH=$plain" >/dev/null 2>&1 &&
        fail "cmake: a newer version is found"
else
    echo "SKIPPED: no cmake"
fi

# ---------------------------------------------------------------------------------------------------------------- Meson
if command -v meson >/dev/null && command -v ninja >/dev/null && command -v pkg-config >/dev/null; then
    cat >"$scratch/project/meson.build" <<END
project('example', 'c')
executable('shared', 'cycle.c', dependencies: dependency('nd', version: '>=${version%.*}'))
executable('static', 'cycle.c', dependencies: dependency('nd', static: true))
END
    must "meson" meson setup "$scratch/meson" "$scratch/project" && must "meson" meson compile -C "$scratch/meson" && {
        runs "meson, shared" "$scratch/meson/shared"
        runs "meson, static" "$scratch/meson/static"
        links "meson, shared" "$scratch/meson/shared" yes
        links "meson, static" "$scratch/meson/static" no
    }
else
    echo "SKIPPED: no meson, ninja or pkg-config"
fi
[ "$failures" -eq 0 ]
