"""The shell rule that is still built into Bazel 4 to 7."""

sh_test = native.sh_test
