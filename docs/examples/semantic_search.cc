// semantic_search, in C++: finds lines of files by what they mean.
#include "minilm/minilm.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nd/nd.hpp>
#include <string>
#include <unistd.h>
#include <vector>

enum { ANSWERS = 5 };

/// A line of a file.
struct line {
    std::string text, file;
    int number;
};

/// Adds the lines of a file that are not blank. False, with the error printed.
static bool read_lines(std::vector<line> &to, const char *path) {
    std::ifstream file(path);
    if (!file)
        return std::perror(path), false;
    std::string text;
    for (int number = 1; std::getline(file, text); number++) {
        if (!text.empty() && text.back() == '\r')
            text.pop_back();
        if (text.find_first_not_of(" \t") != std::string::npos)
            to.push_back({text, path, number});
    }
    return !file.bad() || (std::perror(path), false); // such as a folder
}

/// The directions of all lines: [lines, width].
static nd::tensor embed_lines(const nd::object &model, const std::vector<line> &from) {
    std::vector<const char *> texts;
    for (const line &each : from)
        texts.push_back(each.text.c_str());
    return nd::tensor(minilm_embed(model.get(), texts.size(), texts.data()));
}

/// Prints the lines that mean most nearly what the query means.
static bool answer(const nd::object &model, const nd::tensor &index, const std::vector<line> &from,
                   const char *query) {
    nd::tensor wanted(minilm_embed(model.get(), 1, &query));
    nd::tensor cosines = nd::linear(wanted, index, nullptr); // [1, lines]: all have length 1
    nd_tensor *values = nullptr, *places = nullptr;
    int64_t count = std::min<int64_t>(static_cast<int64_t>(from.size()), ANSWERS);
    if (nd_topk(cosines.get(), count, 1, true, &values, &places) != ND_OK)
        return std::fprintf(stderr, "semantic_search: %s\n", nd_error_get_message()), false;
    nd::tensor best(values), which(places); // which own them from here on
    const float *scores = static_cast<const float *>(nd_get_data(best));
    const int64_t *at = static_cast<const int64_t *>(nd_get_data(which));
    for (int64_t i = 0; i < count; i++) {
        const line &found = from[static_cast<size_t>(at[i])];
        std::printf("%.2f %s:%d: %s\n", static_cast<double>(scores[i]), found.file.c_str(),
                    found.number, found.text.c_str());
    }
    return true;
}

int main(int argc, char **argv) {
    const char *folder = nullptr, *query = nullptr, *from = std::getenv("BUILD_WORKING_DIRECTORY");
    std::vector<line> all;
    bool fine = !from || chdir(from) == 0; // where `bazel run` was called
    for (int i = 1; i < argc && fine; i++) {
        if (i + 1 < argc && std::strcmp(argv[i], "--model") == 0)
            folder = argv[++i];
        else if (i + 1 < argc && std::strcmp(argv[i], "--query") == 0)
            query = argv[++i];
        else
            fine = read_lines(all, argv[i]);
    }
    nd::object model(fine ? minilm_open(folder) : nullptr);
    nd::tensor index = model ? embed_lines(model, all) : nd::tensor();
    if (fine && !index)
        std::fprintf(stderr, "semantic_search: %s\n", minilm_get_problem());
    fine = index && (!query || answer(model, index, all, query));
    std::string asked;
    while (fine && !query && std::getline(std::cin, asked))
        fine = answer(model, index, all, asked.c_str());
    return fine ? 0 : 1;
}
