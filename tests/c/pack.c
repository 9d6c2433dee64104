// Packing a model into one file, which loads as the same model to the bit, and what it refuses. The file goes beside this
// program. Usage: pack MODEL

#include "test.h"

static void refusals(const char *path, const char *to) {
    SIZED(uform_pack_options_t, options);
    size_t length = strlen(path), to_length = strlen(to);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_pack, NULL, 1, to, to_length, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_pack, path, length, NULL, 1, NULL);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "destination", uform_model_pack, path, length, to, 0, NULL);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, ".safetensors", uform_model_pack, path, length, "packed", 6, NULL);
    FAILS_SAYING(UFORM_STATUS_NOT_FOUND, "no/such", uform_model_pack, "no/such/model", 13, to, to_length, NULL);
    options.precision = 5;
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "precision", uform_model_pack, path, length, to, to_length, &options);
    options.precision = UFORM_PRECISION_I8;
    options.layout = 2;
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "layout", uform_model_pack, path, length, to, to_length, &options);
    options.layout = UFORM_LAYOUT_X86;
    options.reserved = 1;
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_model_pack, path, length, to, to_length, &options);
    options.reserved = 0;
    options.size = 4;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_pack, path, length, to, to_length, &options);
    options.size = sizeof options;
}

static void round_trips(const char *path, const char *to) {
    SIZED(uform_pack_options_t, options);
    SIZED(uform_load_options_t, load);
    uform_model_t *out = NULL;
    size_t length = strlen(path), to_length = strlen(to);
    options.precision = UFORM_PRECISION_I8;
    float expected[2][64], found[2][64];
    uform_text_t texts[2];
    texts[0] = text("a cat");
    texts[1] = text("a dog");
    uform_matrix_t rows = matrix(expected, 2, 64, UFORM_DTYPE_F32);
    load.precision = UFORM_PRECISION_I8;
    SUCCEEDS(uform_model_load_ram, path, length, NULL, &load, &out);
    SIZED(uform_model_description_t, description);
    SUCCEEDS(uform_model_describe, out, &description);
    rows.columns = description.default_dimensions;
    CHECK(rows.columns <= 64);
    SUCCEEDS(uform_embed_texts, out, NULL, texts, 2, NULL, &rows, NULL);
    uform_model_free(out);
    for (int layout = UFORM_LAYOUT_PORTABLE; layout <= UFORM_LAYOUT_X86; ++layout) {
        options.layout = layout;
        SUCCEEDS(uform_model_pack, path, length, to, to_length, &options);
        load.precision = UFORM_PRECISION_F32;
        load.reading = UFORM_READING_SEQUENTIAL;
        FAILS_SAYING(UFORM_STATUS_UNSUPPORTED, "precision", uform_model_load_ram, to, to_length, NULL, &load, &out);
        load.precision = UFORM_PRECISION_AUTO;
        for (load.reading = UFORM_READING_SEQUENTIAL; load.reading <= UFORM_READING_MAPPED; ++load.reading) {
            SUCCEEDS(uform_model_load_ram, to, to_length, NULL, &load, &out);
            rows.data = found;
            SUCCEEDS(uform_embed_texts, out, NULL, texts, 2, NULL, &rows, NULL);
            CHECK(memcmp(found, expected, 2 * rows.columns * sizeof(float)) == 0);
            uform_model_free(out);
        }
    }
}

int main(int count, char **arguments) {
    char to[1024];
    if (count != 2) return fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    snprintf(to, sizeof to, "%s.safetensors", arguments[0]);
    refusals(arguments[1], to);
    round_trips(arguments[1], to);
    remove(to);
    return test_result("pack");
}
