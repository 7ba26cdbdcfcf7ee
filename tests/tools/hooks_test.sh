#!/usr/bin/env bash
# tools/hooks: a repository with nothing but the hooks takes what is right and refuses what is not.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0
if ! command -v git >/dev/null; then
    echo "SKIPPED: no git"
    exit 0
fi
export HOME=$TEST_TMPDIR GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
mkdir -p "$TEST_TMPDIR/clone" && cd "$TEST_TMPDIR/clone" && git init -q . || exit 1
mkdir -p tools/hooks lib/core lib/base
cp -L "$root"/tools/hooks/{pre-commit,commit-msg,install.sh} tools/hooks/
cp -L "$root/.clang-format" .
touch lib/core/a lib/base/a
tools/hooks/install.sh >/dev/null

# commit accepted|refused SUBJECT [BODY]: what the hooks say to a commit of what is staged.
commit() {
    local answer=accepted
    git commit -q --allow-empty -m "$2" ${3:+-m "$3"} >"$TEST_TMPDIR/said" 2>&1 || answer=refused
    [ "$answer" = "$1" ] && return
    echo "'$2' was $answer"
    cat "$TEST_TMPDIR/said"
    failures=$((failures + 1))
}

git add -A
commit accepted "tools: begin"
commit accepted "core: free what is dead" "Because it is."
commit accepted "core, tests: free what is dead"
commit accepted "gc: look again"
commit refused "free what is dead"
commit refused "cellar: free what is dead"
commit refused "core, cellar: free what is dead"
commit refused "core:"
commit refused "core: free what is dead."
commit refused "core: $(printf 'x%.0s' {1..100})"

printf 'int main(void) {\n    return 0;\n}\n' >right.c
git add right.c
commit accepted "core: add a file"
printf 'int f(void) { return 0; }   \n' >wrong.c
git add wrong.c
commit refused "core: add a file with blanks"
if command -v clang-format >/dev/null; then
    printf 'int f(void)\n{\n  return 0;\n}\n' >wrong.c
    git add wrong.c
    commit refused "core: add a file that is not formatted"
    printf 'int f(void) {\n    return 0;\n}\n' >wrong.c
    commit refused "core: format it in the folder alone"
    git add wrong.c
    commit accepted "core: format what is committed"
fi
printf 'if true; then\n' >wrong.sh
git add wrong.sh
commit refused "tools: add half a script"
[ "$failures" -eq 0 ]
