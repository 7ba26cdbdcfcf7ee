#!/usr/bin/env bash
# Installs the library: ./bazelw run //:install -- --prefix=DIR [--destdir=DIR] [--libdir=lib]
#
# What is installed finds its parts by where they are, so the folder can be moved afterwards. --destdir stands before the prefix
# in every path that is written and nowhere in what is written, as packagers want it.
set -eu
tree=$1
shift
prefix= destdir= libdir=lib

say_usage() {
    cat <<'END'
usage: ./bazelw run //:install -- --prefix=DIR [--destdir=DIR] [--libdir=DIR]

  --prefix=DIR    where include/, lib/ and share/ go
  --destdir=DIR   is put before the prefix in every path that is written (for packages)
  --libdir=DIR    below the prefix; lib by default, such as lib/x86_64-linux-gnu
END
}

for argument in "$@"; do
    case $argument in
    --prefix=*) prefix=${argument#*=} ;;
    --destdir=*) destdir=${argument#*=} ;;
    --libdir=*) libdir=${argument#*=} ;;
    --help | -h) say_usage && exit 0 ;;
    *) echo "install: $argument is not known" >&2 && say_usage >&2 && exit 2 ;;
    esac
done
[ -n "$prefix" ] || { echo "install: --prefix is missing" >&2; say_usage >&2; exit 2; }
case $libdir in
/* | *..* | '') echo "install: --libdir is a folder below the prefix, not '$libdir'" >&2; exit 2 ;;
esac

# Relative folders are the caller's; Bazel runs this somewhere else.
absolute() {
    case $1 in
    /*) printf %s "$1" ;;
    *) printf %s "${BUILD_WORKING_DIRECTORY:-$PWD}/$1" ;;
    esac
}
prefix=$(absolute "$prefix")
[ -z "$destdir" ] || destdir=$(absolute "$destdir")
to=$destdir$prefix
up=$(sed -E 's|[^/]+|..|g' <<<"${libdir%/}") # from libdir to the prefix

read -r version <"$tree/version"
read -r flags <"$tree/flags"
library=libnd.so.$version
soname=libnd.so.${version%%.*}

while IFS= read -r header; do
    install -Dm644 "$tree/include/$header" "$to/include/$header"
done < <(cd "$tree/include" && find -L . -type f)
install -Dm644 "$tree/lib/libnd.a" "$to/$libdir/libnd.a"
install -Dm755 "$tree/lib/$library" "$to/$libdir/$library"
for beside in "$tree"/lib/*.so.*; do # what it finds there
    [ "${beside##*/}" = "$library" ] || install -Dm755 "$beside" "$to/$libdir/${beside##*/}"
done
install -Dm644 "$tree/lib/.debug/$library.debug" "$to/$libdir/.debug/$library.debug"
ln -sfn "$library" "$to/$libdir/$soname"
ln -sfn "$soname" "$to/$libdir/libnd.so"
for document in "$tree"/doc/*; do
    install -Dm644 "$document" "$to/share/doc/nd/${document##*/}"
done

# pkg_config NAME DESCRIPTION LIBRARIES: NAME.pc, for pkg-config, and so for Meson.
pkg_config() {
    cat >"$to/$libdir/pkgconfig/$1.pc" <<END
prefix=\${pcfiledir}/../$up
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: $1
Description: $2
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} $3
END
}
mkdir -p "$to/$libdir/pkgconfig" "$to/$libdir/cmake/nd"
pkg_config nd "Tensors in C whose memory is counted, managed and collected" "-lnd
Libs.private: $flags"

# The archive with MPI: a program links it in the place of libnd.so or libnd.a.
distributed=
if [ -e "$tree/lib/libnd_distributed.a" ]; then
    read -r distributed_flags <"$tree/distributed_flags"
    install -Dm644 "$tree/lib/libnd_distributed.a" "$to/$libdir/libnd_distributed.a"
    pkg_config nd_distributed "nd for programs of several processes" "-l:libnd_distributed.a $distributed_flags"
    distributed="
  add_library(nd::distributed STATIC IMPORTED)
  set_target_properties(nd::distributed PROPERTIES
    IMPORTED_LOCATION \"\${_nd_prefix}/$libdir/libnd_distributed.a\"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES \"\${_nd_prefix}/include\"
    INTERFACE_LINK_LIBRARIES \"${distributed_flags// /;}\")"
fi

cat >"$to/$libdir/cmake/nd/nd-config.cmake" <<END
# find_package(nd): nd::nd is the shared library, nd::static the archive, nd::distributed, where there is an MPI, the archive that
# has <nd/distributed.h> too.
get_filename_component(_nd_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../$up" ABSOLUTE)
if(NOT TARGET nd::nd)
  add_library(nd::nd SHARED IMPORTED)
  set_target_properties(nd::nd PROPERTIES
    IMPORTED_LOCATION "\${_nd_prefix}/$libdir/$library"
    IMPORTED_SONAME "$soname"
    INTERFACE_INCLUDE_DIRECTORIES "\${_nd_prefix}/include")
  add_library(nd::static STATIC IMPORTED)
  set_target_properties(nd::static PROPERTIES
    IMPORTED_LOCATION "\${_nd_prefix}/$libdir/libnd.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "\${_nd_prefix}/include"
    INTERFACE_LINK_LIBRARIES "${flags// /;}")$distributed
endif()
unset(_nd_prefix)
END

# Compatible: the same major version; while that is 0, the same minor one.
cat >"$to/$libdir/cmake/nd/nd-config-version.cmake" <<END
set(PACKAGE_VERSION "$version")
string(REGEX MATCH "^[0-9]+\\\\.[0-9]+" _nd_minor "\${PACKAGE_VERSION}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION AND PACKAGE_FIND_VERSION_MAJOR EQUAL ${version%%.*}
   AND (PACKAGE_FIND_VERSION_MAJOR GREATER 0 OR PACKAGE_FIND_VERSION VERSION_GREATER_EQUAL _nd_minor))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
unset(_nd_minor)
END
echo "installed nd $version to $to"
