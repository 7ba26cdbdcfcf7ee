#!/usr/bin/env bash
# test_F36_a_setuid_program_reads_no_variable: root's program, run by nobody, neither writes a file that nobody names nor
# changes what it does; run by root itself it does both.
set -u
program=$TEST_SRCDIR/$TEST_WORKSPACE/tests/faults/setuid_program

# No variable is read in another way, which covers those that this machine cannot show (ND_CUBLAS). What libraries of others read
# is theirs.
readers=$(find -L "$TEST_SRCDIR/$TEST_WORKSPACE" -name '*.o' -exec nm -A --undefined-only {} + | grep -E ' (secure_)?getenv$| _*environ$')
if grep -vw 'secure_getenv' <<<"$readers" || [ "$(grep -c . <<<"$readers")" -lt 3 ]; then
    printf 'read the environment in setuid programs, too:\n%s\n' "$readers"
    exit 1
fi

# A folder that nobody may pass through; the test's own belongs to root's cache.
folder=$(mktemp -d /tmp/nd_setuid_XXXXXX) || exit 1
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp "$program" "$folder/program" && chmod 4755 "$folder/program"
mkdir -m 700 "$folder/own"
mkdir -m 777 "$folder/here"
cd "$folder/here" || exit 1
file=$folder/own/file
# The last two are oneDNN's.
run() {
    env ND_TRACE="$file" ND_GC=on ND_LEAK_CHECK=1 DNNL_VERBOSE=1 DNNL_JIT_DUMP=1 "$@" "$folder/program" 2>"$folder/errors"
}

echo "root's own" >"$file"
said=$(run)
if [[ $said != *"mode on"* ]] || ! grep -q 'live bytes' "$file" || ! grep -q 'no leaks' "$folder/errors"; then
    echo "the variables do nothing: $said"
    cat "$folder/errors"
    exit 1
fi

nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" -ne 0 ] || ! without=$("${nobody[@]}" "$folder/program" 2>&1) || [[ $without != "secure 1, user 0,"* ]]; then
    echo "SKIPPED: no program can be made setuid here: $without"
    exit 0
fi
echo "root's own" >"$file"
rm -f "$folder"/here/*
said=$(run "${nobody[@]}")
if [ "$said" != "$without" ] || [ "$(cat "$file")" != "root's own" ] || [ -s "$folder/errors" ] ||
    [ -n "$(ls -A "$folder/here")" ]; then
    echo "the setuid program read its caller's variables: $said"
    head -c 200 "$file" "$folder/errors"
    ls "$folder/here"
    exit 1
fi
