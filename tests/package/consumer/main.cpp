// Embeds two texts through the installed C++ header and prints the version and the size of what came out.

#include <cstdio>
#include <uform.hpp>

int main(int count, char **arguments) {
    if (count != 2) return std::fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    try {
        auto threads = uform::executor::for_ram();
        auto model = uform::model::load_ram(arguments[1], threads);
        auto rows = model.on(threads).embed_texts({"a cat", "a dog"});
        std::printf("%s: %zu rows of %zu\n", uform::version().data(), rows.rows(), rows.columns());
        return rows.rows() == 2 && rows.columns() > 0 ? 0 : 1;
    } catch (uform::error const &error) {
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
}
