#!/usr/bin/env bash
# Draws docs/architecture.svg and docs/collector.svg anew, into the repository or the folder that is named:
#   ./bazelw run //docs:pictures [-- FOLDER]
set -eu
folder=${1:-${BUILD_WORKSPACE_DIRECTORY:-$PWD}/docs}
exec python3 docs/pictures.py docs/dependencies lib/base/seam.h "$folder"
