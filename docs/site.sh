#!/usr/bin/env bash
# The documentation as a site: the pages of docs/ and the reference of the public headers, with searches that need no server.
#
#   ./bazelw run //docs:site                        writes site/ in the repository; open site/index.html
#   ./bazelw run //docs:site -- --output=FOLDER     writes there
set -eu
output=site
for argument in "$@"; do
    case $argument in
    --output=*) output=${argument#*=} ;;
    *) echo "site: $argument is not known; there is --output=FOLDER" >&2 && exit 2 ;;
    esac
done
command -v doxygen >/dev/null || { echo "site: needs doxygen (apt-get install doxygen)" >&2; exit 1; }
case $output in
/*) ;;
site) output=${BUILD_WORKSPACE_DIRECTORY:-$PWD}/site ;;
*) output=${BUILD_WORKING_DIRECTORY:-$PWD}/$output ;;
esac

# Doxygen reads a copy, in which links that lead to files of the repository and not to pages are plain text.
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
cp -rL README.md CONTRIBUTING.md CHANGELOG.md docs include "$pages/"
mkdir -p "$pages/lib/distributed"
cp -rL lib/distributed/include "$pages/lib/distributed/"
rm -rf "$pages/docs/examples"
cd "$pages"
python3 docs/site.py README.md CONTRIBUTING.md CHANGELOG.md docs/*.md

doxygen -l layout.xml >/dev/null
sed -i '/<tab type="pages"/i <tab type="user" visible="yes" url="./text.html" title="Search the text"/>' layout.xml
{
    cat docs/Doxyfile
    cat <<'END'
INPUT                  = README.md CONTRIBUTING.md CHANGELOG.md docs include/nd lib/distributed/include/nd
FILE_PATTERNS          = *.h *.hpp *.md
RECURSIVE              = YES
EXCLUDE_PATTERNS       = */detail/*
USE_MDFILE_AS_MAINPAGE = README.md
IMAGE_PATH             = docs
HTML_EXTRA_FILES       = docs/architecture.svg docs/collector.svg docs/explain.svg docs/gc_on_off.svg docs/workloads_cnn.svg docs/workloads_wgan_gp.svg docs/workloads_rnn_lstm.svg docs/workloads_rnn_gru.svg docs/workloads_rnn_attached.svg docs/workloads_pipeline.svg docs/workloads_objects.svg docs/workloads_large_images.svg docs/workloads_minilm.svg docs/workloads_transformer.svg docs/workloads_serve.svg docs/workloads_long.svg
GENERATE_TREEVIEW      = YES
SEARCHENGINE           = YES
SERVER_BASED_SEARCH    = NO
HTML_COLORSTYLE_SAT    = 40
TOC_INCLUDE_HEADINGS   = 2
LAYOUT_FILE            = layout.xml
# What is undocumented is found by //tests/docs; the pages are prose.
WARN_AS_ERROR          = NO
WARN_IF_UNDOCUMENTED   = NO
END
    echo "OUTPUT_DIRECTORY = $pages/out"
} >Doxyfile.site
doxygen Doxyfile.site
python3 docs/site_search.py out/html
mkdir -p "$output"
# What an earlier run wrote and this one does not, goes: but nothing is removed from a folder that is no site.
if [ -n "$(ls -A "$output")" ] && [ ! -e "$output/doxygen.css" ]; then
    echo "site: $output is not empty, and not a site" >&2
    exit 1
fi
rm -rf "${output:?}"/*
cp -r out/html/. "$output/"
echo "site: $output/index.html, $(find "$output" -name '*.html' | wc -l) pages"
