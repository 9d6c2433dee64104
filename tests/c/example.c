// Embeds three sentences and prints how alike they are.

#include <stdio.h>
#include <string.h>
#include <uform.h>

int main(int count, char **arguments) {
    if (count != 2) return fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;

    uform_error_t error;
    uform_executor_t *threads = NULL;
    uform_model_t *model = NULL;
    uform_model_description_t described = {.size = sizeof described};
    if (uform_executor_for_ram(NULL, 0, 0, 0, 0, &threads, &error) ||
        uform_model_load_ram(arguments[1], strlen(arguments[1]), threads, NULL, &model, &error) ||
        uform_model_describe(model, &described, &error))
        return fprintf(stderr, "%s\n", error.message), 1;

    enum { rows = 3, most = 1024 };
    static float values[rows][most];
    uform_text_t texts[rows] = {{"a cat sleeps", 12}, {"a kitten naps", 13}, {"stocks fell today", 17}};
    uform_embed_options_t options = {.size = sizeof options, .normalize = UFORM_NORMALIZE_YES};
    uform_matrix_t output = {values, rows, described.default_dimensions, sizeof values[0], UFORM_DTYPE_F32, 0};
    if (described.default_dimensions > most ||
        uform_embed_texts(model, threads, texts, rows, &options, &output, NULL, &error))
        return fprintf(stderr, "%s\n", error.message), 1;

    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < rows; j++) {
            float cosine = 0;
            for (size_t k = 0; k < described.default_dimensions; k++)
                cosine += values[i][k] * values[j][k];
            printf("%6.3f", cosine);
        }
        printf("  %s\n", texts[i].data);
    }
    uform_model_free(model);
    uform_executor_free(threads);
    return 0;
}
