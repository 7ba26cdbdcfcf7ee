#!/usr/bin/env bash
# tools/compile_commands.sh [TARGETS]: writes compile_commands.json, from which editors and clangd learn how each file is compiled.
# Asks Bazel, which compiles nothing for it; //... by default. Run it again after a BUILD file has changed.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- //...
targets=$(printf ' + %s' "$@")
queried=$(mktemp)
trap 'rm -f "$queried"' EXIT
./bazelw aquery --noshow_progress --ui_event_filters=-info --output=jsonproto --include_artifacts=false \
    "mnemonic('CppCompile', ${targets# + })" >"$queried"
root=$(./bazelw info --noshow_progress --ui_event_filters=-info execution_root)
python3 - "$queried" "$root" >compile_commands.json.new <<'END'
import json, os, sys
actions = json.load(open(sys.argv[1])).get("actions", [])
root = sys.argv[2]
entries = {}
for action in actions:
    arguments = action["arguments"]
    source = arguments[arguments.index("-c") + 1]
    output = arguments[arguments.index("-o") + 1]
    # A file of this repository is named by its real path: that is the one an editor opens.
    if os.path.exists(source):
        path = os.path.abspath(source)
    else:
        path = os.path.join(root, source)
    # Public headers are found where they are, before the links to them that a build makes.
    arguments.insert(1, "-I" + os.path.abspath("include"))
    # The first way wins: a file is compiled several times for instruction sets and for libnd.so.
    entries.setdefault(path, {"directory": root, "file": path, "output": output,
                              "arguments": [path if argument == source else argument for argument in arguments]})
json.dump(sorted(entries.values(), key=lambda entry: entry["file"]), sys.stdout, indent=1)
END
mv compile_commands.json.new compile_commands.json
echo "compile_commands.json: $(grep -c '"file"' compile_commands.json) files"
