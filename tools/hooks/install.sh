#!/usr/bin/env bash
# tools/hooks/install.sh: has git run the hooks beside this file in this clone. `git config --unset core.hooksPath` ends that.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
git config core.hooksPath tools/hooks
echo "git runs tools/hooks/pre-commit and tools/hooks/commit-msg; --no-verify leaves them out once"
