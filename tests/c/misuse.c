// Calls that no right program makes, function by function: each has to end with a status and a sentence, or do nothing,
// and leave nothing behind. Usage: misuse MODEL

#include "test.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>

static const char *model_path;
static uform_model_t *model;
static size_t dimensions;

/// Bytes that are no UTF-8.
static uform_text_t broken_text(void) { return text("a\xff\xfe z"); }

static void classes(void) {
    uform_cpu_class_t cpu = 77;
    uform_gpu_class_t gpu = 77;
    int32_t numbers[] = {0, -1, 19, 99, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CHECK(uform_cpu_class_name(numbers[i]) == NULL);
        CHECK(uform_gpu_class_name(numbers[i]) == NULL);
    }
    CHECK(strcmp(uform_cpu_class_name(UFORM_CPU_CLASS_INTEL_HASWELL), "intel-haswell") == 0);
    CHECK(strcmp(uform_gpu_class_name(UFORM_GPU_CLASS_APPLE_METAL10), "apple-metal10") == 0);
    CHECK(uform_gpu_class_name(13) == NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_cpu_class_parse, NULL, 0, &cpu);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "NULL", uform_cpu_class_parse, NULL, 5, &cpu);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "intel-haswell", uform_cpu_class_parse, "intel", 5, &cpu);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_cpu_class_parse, "intel-haswell", 12, &cpu);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_cpu_class_parse, "\xff\xff", 2, &cpu);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_cpu_class_parse, "serial", SIZE_MAX, &cpu);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_cpu_class_parse, "serial", 6, NULL);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "nvidia-hopper", uform_gpu_class_parse, "serial", 6, &gpu);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_gpu_class_parse, "nvidia-ada", 10, NULL);
    CHECK(cpu == 77 && gpu == 77);
    SUCCEEDS(uform_cpu_class_parse, "monoversioned", 13, &cpu);
    SUCCEEDS(uform_gpu_class_parse, "amd-cdna4", 9, &gpu);
    CHECK(cpu == UFORM_CPU_CLASS_MONOVERSIONED && gpu == UFORM_GPU_CLASS_AMD_CDNA4);
    SUCCEEDS(uform_log_callback, NULL, &cpu);
}

static void devices(void) {
    uform_gpu_device_t room[2];
    size_t count = 0;
    SUCCEEDS(uform_gpu_devices, NULL, sizeof *room, 0, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_gpu_devices, NULL, sizeof *room, 0, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_gpu_devices, NULL, sizeof *room, 1, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_gpu_devices, room, 0, 2, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_gpu_devices, room, SIZE_MAX, 2, &count);
}

static void executors(void) {
    uform_executor_t *out = (uform_executor_t *)&out;
    int32_t nowhere = 12345, negative = -1;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, NULL, 0, 0, 1, 0, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, NULL, 1, 0, 1, 0, &out);
    CHECK(out == NULL); // a failed call leaves no handle that somebody might free
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "12345", uform_executor_for_ram, &nowhere, 1, 0, 1, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, &negative, 1, 0, 1, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, &negative, SIZE_MAX, 0, 1, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, NULL, 0, 99, 1, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, NULL, 0, -1, 1, 0, &out);
    FAILS_SAYING(
        UFORM_STATUS_UNSUPPORTED, "serial", uform_executor_for_ram, NULL, 0, UFORM_CPU_CLASS_WASM32_V128, 1, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_ram, NULL, 0, 0, SIZE_MAX, 0, &out);
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_executor_on_pool, NULL, 0, 0, NULL, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_on_pool, NULL, 0, 0, NULL, 0, NULL);
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_executor_for_vram, NULL, 0, 0, NULL, 0, 0, NULL, 0, 0, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_vram, NULL, 1, 0, NULL, 0, 0, NULL, 0, 0, 0, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_for_vram, NULL, 0, 13, NULL, 0, 0, NULL, 0, 0, 0, &out);
    CHECK(out == NULL);

    SUCCEEDS(uform_executor_drain, NULL, UFORM_MOOD_SPINNING);
    SUCCEEDS(uform_executor_trim, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_drain, NULL, 2);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_drain, NULL, -1);
    SUCCEEDS(uform_executor_for_ram, NULL, 0, UFORM_CPU_CLASS_SERIAL, 2, 3, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_drain, out, 77);

    SIZED(uform_executor_description_t, description);
    SUCCEEDS(uform_executor_describe, out, &description);
    CHECK(description.threads == 2 && description.deferred_limit == 3 && description.size == sizeof description);
    CHECK(description.cpu_class == UFORM_CPU_CLASS_SERIAL && description.residency == UFORM_RESIDENCY_RAM);
    SUCCEEDS(uform_executor_describe, NULL, &description);
    CHECK(description.threads == 1);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_executor_describe, out, NULL);
    size_t wrong[] = {0, 1, 7, sizeof(size_t) + 1, sizeof description - 1, SIZE_MAX, (size_t)1 << 40};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        description.size = wrong[i];
        FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "size", uform_executor_describe, out, &description);
    }
    uform_executor_free(out);
    uform_executor_free(NULL);
}

/// A structure of today inside one of a library that is older or newer than the program.
typedef struct {
    uform_executor_description_t known;
    unsigned char tail[64];
} longer_description_t;

static void descriptions_of_every_age(void) {
    longer_description_t described;
    memset(&described, 0x5a, sizeof described);
    described.known.size = offsetof(uform_executor_description_t, threads) + sizeof(size_t);
    SUCCEEDS(uform_executor_describe, NULL, &described.known);
    CHECK(described.known.threads == 1);
    CHECK(((unsigned char *)&described.known.deferred_limit)[0] == 0x5a); // beyond what an older program has

    memset(&described, 0x5a, sizeof described);
    described.known.size = sizeof described;
    SUCCEEDS(uform_executor_describe, NULL, &described.known);
    CHECK(described.known.threads == 1 && described.known.size == sizeof described);
    for (size_t i = 0; i < sizeof described.tail; i++)
        CHECK(described.tail[i] == 0); // what this library lacks
}

static int32_t stop(void *context, uint64_t done, uint64_t total) {
    ++*(int *)context;
    return done <= total ? 1 : 2;
}

typedef struct {
    uform_load_options_t known;
    uint64_t tail[4];
} longer_load_options_t;

static void loading(void) {
    uform_model_t *out = (uform_model_t *)&out;
    size_t length = strlen(model_path);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, model_path, length, NULL, NULL, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, NULL, 0, NULL, NULL, &out);
    CHECK(out == NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, NULL, 3, NULL, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, "", 0, NULL, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, "x", SIZE_MAX, NULL, NULL, &out);
    FAILS_SAYING(UFORM_STATUS_NOT_FOUND, "no/such/model", uform_model_load_ram, "no/such/model", 13, NULL, NULL, &out);
    FAILS(UFORM_STATUS_NOT_FOUND, uform_model_load_ram, "\xff\xfe", 2, NULL, NULL, &out);
    FAILS_SAYING(
        UFORM_STATUS_INVALID_ARGUMENT, "no zero byte, found one after 1 bytes", uform_model_load_ram, "a\0b", 3, NULL,
        NULL, &out);
    CHECK(uform_model_load_ram("a\0b", 3, NULL, NULL, &out, NULL) != UFORM_STATUS_OK && out == NULL);

    longer_load_options_t options;
    memset(&options, 0, sizeof options);
    FAILS_SAYING(
        UFORM_STATUS_INVALID_ARGUMENT, "size", uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.size = sizeof options; // newer than this library, nothing set
    SUCCEEDS(uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    uform_model_free(out);
    options.tail[3] = 1; // set, and not known here
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.size = offsetof(uform_load_options_t, cpu_class); // older: what follows is not looked at
    options.known.cpu_class = 12345;
    SUCCEEDS(uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    uform_model_free(out);
    options.known.size = sizeof options.known;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.cpu_class = 0;
    options.known.precision = 99;
    FAILS_SAYING(
        UFORM_STATUS_INVALID_ARGUMENT, "precision", uform_model_load_ram, model_path, length, NULL, &options.known,
        &out);
    options.known.precision = 0;
    options.known.reading = 2;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.reading = 0;
    options.known.reserved = 1;
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.reserved = 0;
    options.known.memory_domains_count = 2;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    int32_t domain = -7;
    options.known.memory_domains = &domain;
    options.known.memory_domains_count = 1;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    options.known.memory_domains_count = 0;
    int calls = 0;
    options.known.progress = stop;
    options.known.progress_context = &calls;
    FAILS(UFORM_STATUS_CANCELLED, uform_model_load_ram, model_path, length, NULL, &options.known, &out);
    CHECK(calls == 2); // one of each call of FAILS
    CHECK(out == NULL);
    FAILS(UFORM_STATUS_UNSUPPORTED, uform_model_load_vram, model_path, length, NULL, NULL, 0, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_vram, model_path, length, NULL, NULL, 1, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_vram, model_path, length, NULL, NULL, 0, NULL, NULL);
    CHECK(out == NULL);
}

static void loading_bytes(void) {
    uform_model_t *out = NULL;
    uform_file_t file;
    memset(&file, 0, sizeof file);
    file.name = text("config.json");
    file.data = (const uint8_t *)"{";
    file.length = 1;
    CHECK(uform_model_load_ram_from_bytes(NULL, 0, NULL, NULL, &out, NULL) != UFORM_STATUS_OK);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram_from_bytes, NULL, 1, NULL, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram_from_bytes, &file, 1, NULL, NULL, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram_from_bytes, &file, SIZE_MAX / 16, NULL, NULL, &out);
    CHECK(uform_model_load_ram_from_bytes(&file, 1, NULL, NULL, &out, NULL) != UFORM_STATUS_OK);
    file.name = broken_text();
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram_from_bytes, &file, 1, NULL, NULL, &out);
    file.name = text("model.safetensors");
    file.data = NULL;
    file.length = 8;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_load_ram_from_bytes, &file, 1, NULL, NULL, &out);
    CHECK(out == NULL);
}

static void asking_models(void) {
    SIZED(uform_model_description_t, description);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_describe, NULL, &description);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_describe, model, NULL);
    SUCCEEDS(uform_model_describe, model, &description);
    CHECK(description.architecture.length > 0 && description.token_limit > 2 && description.weight_bytes > 0);
    description.size = 4;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_describe, model, &description);

    uint64_t bytes = 0;
    SIZED(uform_embed_options_t, options);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_plan, NULL, NULL, 1, 1, NULL, &bytes);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_plan, model, NULL, 1, 1, NULL, NULL);
    SUCCEEDS(uform_model_plan, model, NULL, 1, 0, &options, &bytes);
    CHECK(bytes > 0);
    uform_status_t huge = uform_model_plan(model, NULL, SIZE_MAX, SIZE_MAX, NULL, &bytes, NULL);
    CHECK(huge == UFORM_STATUS_OK || huge == UFORM_STATUS_INVALID_ARGUMENT);
    options.role = 3;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_plan, model, NULL, 1, 1, &options, &bytes);
    options.role = 0;

    uform_token_t tokens[16];
    size_t count = 0;
    uform_text_t broken = broken_text();
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, NULL, "a", 1, NULL, tokens, 16, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, model, NULL, 1, NULL, tokens, 16, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, model, "a", 1, NULL, NULL, 16, &count);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, model, "a", 1, NULL, tokens, 16, NULL);
    FAILS(
        UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, model, broken.data, broken.length, NULL, tokens, 16,
        &count);
    FAILS(UFORM_STATUS_BUFFER_TOO_SMALL, uform_model_tokenize, model, "a", 1, NULL, NULL, 0, &count);
    CHECK(count >= 3);
    SUCCEEDS(uform_model_tokenize, model, NULL, 0, NULL, tokens, 16, &count);
    options.token_limit = 3;
    options.length = UFORM_LENGTH_REFUSE;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_tokenize, model, "a b c d", 7, &options, tokens, 16, &count);

    uform_model_t *out = (uform_model_t *)&out;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_clone, NULL, &out);
    CHECK(out == NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_model_clone, model, NULL);
    uform_model_free(NULL);
}

typedef struct {
    uform_embed_options_t known;
    uint64_t tail[2];
} longer_embed_options_t;

/// One text with options that cannot be right.
static void refused(const uform_embed_options_t *options, uform_status_t expected, const char *part) {
    float values[1024];
    uform_text_t one = text("a");
    uform_matrix_t output = matrix(values, 1, dimensions, UFORM_DTYPE_F32);
    uform_deferred_t *out = NULL;
    FAILS_SAYING(expected, part, uform_embed_texts, model, NULL, &one, 1, options, &output, NULL);
    uform_status_t status = uform_embed_texts_deferred(model, NULL, &one, 1, options, &output, NULL, &out, NULL);
    CHECK(status == expected || (status == UFORM_STATUS_OK && uform_deferred_wait(out, -1, NULL) == expected));
    uform_deferred_free(out);
}

static void embedding_options(void) {
    const uform_embed_options_t *known;
    longer_embed_options_t options;
    memset(&options, 0, sizeof options);
    known = &options.known;
    refused(known, UFORM_STATUS_INVALID_ARGUMENT, "size");
#define REFUSED(member, value, part)                                                                                   \
    memset(&options, 0, sizeof options);                                                                               \
    options.known.size = sizeof options.known;                                                                         \
    options.known.member = value;                                                                                      \
    refused(known, UFORM_STATUS_INVALID_ARGUMENT, part)
    REFUSED(role, 3, "role");
    REFUSED(role, -1, "role");
    REFUSED(normalize, 3, "normalize");
    REFUSED(normalize, INT32_MIN, "normalize");
    REFUSED(length, 2, "length");
    REFUSED(reproducible, 2, "reproducible");
    REFUSED(reserved, 1, "reserved");
    REFUSED(output_scale, (float)NAN, "output_scale");
    REFUSED(output_scale, (float)INFINITY, "output_scale");
    REFUSED(output_scale, -1, "output_scale");
    REFUSED(dimensions, dimensions + 1, "dimensions");
    REFUSED(dimensions, SIZE_MAX, "dimensions");
    REFUSED(prompt_name.length, 5, "prompt_name");
    REFUSED(prompt.length, 5, "prompt");
    REFUSED(prompt, broken_text(), "prompt");
    REFUSED(prompt_name, broken_text(), "prompt_name");
#undef REFUSED
    memset(&options, 0, sizeof options);
    options.known.size = sizeof options.known;
    options.known.prompt_name = text("no such prompt");
    refused(known, UFORM_STATUS_NOT_FOUND, "no such prompt");
    options.known.prompt = text("also this: ");
    refused(known, UFORM_STATUS_INVALID_ARGUMENT, "prompt");
    memset(&options, 0, sizeof options);
    options.known.size = sizeof options;
    options.tail[1] = (uint64_t)1 << 63;
    refused(known, UFORM_STATUS_UNSUPPORTED, "uform_embed_options_t");
    int calls = 0;
    memset(&options, 0, sizeof options);
    options.known.size = sizeof options.known;
    options.known.progress = stop;
    options.known.progress_context = &calls;
    refused(known, UFORM_STATUS_CANCELLED, "");
    CHECK(calls >= 4);
}

static void embedding_arguments(void) {
    float values[2 * 1024];
    uform_text_t texts[2];
    texts[0] = text("a cat");
    texts[1] = text("a dog");
    uform_matrix_t output = matrix(values, 2, dimensions, UFORM_DTYPE_F32), wrong = output;
    uform_report_t reports[2];
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts, NULL, NULL, texts, 2, NULL, &output, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts, model, NULL, NULL, 2, NULL, &output, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts, model, NULL, texts, 2, NULL, NULL, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts, model, NULL, texts, SIZE_MAX, NULL, &output, NULL);
#define WRONG(expected, member, value)                                                                                 \
    wrong = output;                                                                                                    \
    wrong.member = value;                                                                                              \
    FAILS(expected, uform_embed_texts, model, NULL, texts, 2, NULL, &wrong, reports)
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, data, NULL);
    WRONG(UFORM_STATUS_BUFFER_TOO_SMALL, rows, 1);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, rows, 3);
    WRONG(UFORM_STATUS_BUFFER_TOO_SMALL, columns, dimensions - 1);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, columns, SIZE_MAX);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, row_stride, dimensions * 4 - 1);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, row_stride, SIZE_MAX);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, dtype, 0);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, dtype, 7);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, dtype, -1);
    WRONG(UFORM_STATUS_INVALID_ARGUMENT, reserved, 1);
#undef WRONG
    uform_matrix_t none = matrix(NULL, 0, dimensions, UFORM_DTYPE_F32);
    SUCCEEDS(uform_embed_texts, model, NULL, NULL, 0, NULL, &none, NULL);

    // A text that addresses nothing is the caller's mistake, bytes that are no UTF-8 are the row's.
    texts[1].data = NULL;
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "1", uform_embed_texts, model, NULL, texts, 2, NULL, &output, reports);
    texts[1] = broken_text();
    FAILS_SAYING(UFORM_STATUS_ROW_FAILED, "1", uform_embed_texts, model, NULL, texts, 2, NULL, &output, NULL);
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, NULL, &output, reports);
    CHECK(reports[0].status == UFORM_STATUS_OK && reports[0].tokens_kept >= 3 && !reports[0].truncated);
    CHECK(reports[1].status == UFORM_STATUS_INVALID_ARGUMENT);
    for (size_t i = 0; i < dimensions; i++)
        CHECK(!isnan(values[i]) && isnan(values[dimensions + i]));

    SIZED(uform_embed_options_t, options);
    options.token_limit = 4;
    options.length = UFORM_LENGTH_REFUSE;
    texts[1] = text("one two three four five six");
    FAILS_SAYING(UFORM_STATUS_ROW_FAILED, "1", uform_embed_texts, model, NULL, texts, 2, &options, &output, NULL);
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, &options, &output, reports);
    CHECK(reports[0].status == UFORM_STATUS_OK && reports[1].status == UFORM_STATUS_INVALID_ARGUMENT);
    options.length = UFORM_LENGTH_TRUNCATE;
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, &options, &output, reports);
    CHECK(reports[1].status == UFORM_STATUS_OK && reports[1].truncated == 1);
    CHECK(reports[1].tokens_kept == 4 && reports[1].tokens_found > 4);

    // The second time scratch has grown to what such a call takes, and stays.
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, &options, &output, reports);
    SIZED(uform_executor_description_t, description);
    SUCCEEDS(uform_executor_describe, NULL, &description);
    CHECK(description.scratch_bytes > 0 && description.scratch_high_water_bytes > 0);
    SUCCEEDS(uform_executor_trim, NULL);
    SUCCEEDS(uform_executor_describe, NULL, &description);
    CHECK(description.scratch_bytes == 0);
}

/// Memory without any alignment, texts and outputs alike, and rows that are far apart.
static void unaligned_memory(void) {
    static float expected[2 * 1024];
    static unsigned char bytes[2 * 5000 + 8];
    uform_text_t texts[2];
    texts[0] = text("a cat");
    texts[1] = text("a dog");
    uform_matrix_t output = matrix(expected, 2, dimensions, UFORM_DTYPE_F32);
    uform_matrix_t odd = matrix(bytes + 1, 2, dimensions, UFORM_DTYPE_F32);
    odd.row_stride = 4999;
    memset(bytes, 0x5a, sizeof bytes);
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, NULL, &output, NULL);
    SUCCEEDS(uform_embed_texts, model, NULL, texts, 2, NULL, &odd, NULL);
    for (size_t row = 0; row < 2; row++)
        CHECK(memcmp(bytes + 1 + row * 4999, expected + row * dimensions, dimensions * 4) == 0);
    CHECK(bytes[0] == 0x5a && bytes[1 + dimensions * 4] == 0x5a && bytes[4999] == 0x5a);
    CHECK(bytes[1 + 4999 + dimensions * 4] == 0x5a);
}

static void note(void *context, uform_status_t status, const uform_error_t *error) {
    *(int32_t *)context = status == UFORM_STATUS_OK ? error == NULL : error->status == status;
}

static void count_warning(void *context, const char *message, size_t length) {
    (void)message, (void)length;
    ++*(int *)context;
}

/// A failed call that is freed, ended or not, is no reason for a warning.
static void failed_calls_end_quietly(void) {
    static float values[1024];
    int warnings = 0;
    uform_text_t one = text("a");
    uform_matrix_t narrow = matrix(values, 1, dimensions - 1, UFORM_DTYPE_F32);
    uform_executor_t *executor = NULL;
    SUCCEEDS(uform_log_callback, count_warning, &warnings);
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 2, 0, &executor);
    for (int i = 0; i < 200; i++) {
        uform_deferred_t *out = NULL;
        SUCCEEDS(uform_embed_texts_deferred, model, i % 4 ? executor : NULL, &one, 1, NULL, &narrow, NULL, &out);
        if (i % 2) CHECK(uform_deferred_wait(out, -1, NULL) == UFORM_STATUS_BUFFER_TOO_SMALL);
        uform_deferred_free(out);
    }
    uform_executor_free(executor);
    SUCCEEDS(uform_log_callback, NULL, NULL);
    CHECK(warnings == 0);
}

static void deferred_calls(void) {
    static float values[1024];
    uform_text_t one = text("a");
    uform_matrix_t output = matrix(values, 1, dimensions, UFORM_DTYPE_F32);
    uform_deferred_t *out = (uform_deferred_t *)&out;
    uform_status_t status = 77;
    int32_t told = 0;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts_deferred, model, NULL, &one, 1, NULL, &output, NULL, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts_deferred, NULL, NULL, &one, 1, NULL, &output, NULL, &out);
    CHECK(out == NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts_deferred, model, NULL, NULL, 1, NULL, &output, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_embed_texts_deferred, model, NULL, &one, 1, NULL, NULL, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_poll, NULL, &status);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_wait, NULL, 0.0);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_cancel, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_on_done, NULL, note, &told);
    CHECK(told == 0 && status == 77 && out == NULL);

    // On the null executor the call has ended when it was submitted.
    SUCCEEDS(uform_embed_texts_deferred, model, NULL, &one, 1, NULL, &output, NULL, &out);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_poll, out, NULL);
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "NaN", uform_deferred_wait, out, (double)NAN);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_deferred_on_done, out, NULL, &told);
    SUCCEEDS(uform_deferred_poll, out, &status);
    CHECK(status == UFORM_STATUS_OK);
    SUCCEEDS(uform_deferred_on_done, out, note, &told);
    CHECK(told == 1);
    SUCCEEDS(uform_deferred_cancel, out); // too late, and no error
    SUCCEEDS(uform_deferred_wait, out, 0.0);
    SUCCEEDS(uform_deferred_wait, out, (double)-INFINITY);
    SUCCEEDS(uform_deferred_wait, out, 1e300);
    uform_deferred_free(out);
    uform_deferred_free(NULL);

    // One that failed keeps its sentence.
    uform_error_t error;
    one = broken_text();
    SUCCEEDS(uform_embed_texts_deferred, model, NULL, &one, 1, NULL, &output, NULL, &out);
    CHECK(uform_deferred_poll(out, &status, &error) == UFORM_STATUS_OK && status == UFORM_STATUS_ROW_FAILED);
    CHECK(error.status == UFORM_STATUS_ROW_FAILED && test_sentence(&error));
    FAILS(UFORM_STATUS_ROW_FAILED, uform_deferred_wait, out, -1.0);
    told = 0;
    SUCCEEDS(uform_deferred_on_done, out, note, &told);
    CHECK(told == 1);
    uform_deferred_free(out);
}

static void arenas(void) {
    uform_arena_t *out = (uform_arena_t *)&out, *other = NULL;
    uform_matrix_t placed, foreign, nothing, host;
    static float values[4 * 8];
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_new_in, NULL, NULL);
    SUCCEEDS(uform_arena_new_in, NULL, &out);
    SUCCEEDS(uform_arena_new_in, NULL, &other);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_allocate, NULL, 1, 1, UFORM_DTYPE_F32, &placed);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_allocate, out, 1, 1, UFORM_DTYPE_F32, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_allocate, out, 1, 1, 0, &placed);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_allocate, out, 1, 1, 7, &placed);
    uform_status_t huge = uform_arena_allocate(out, SIZE_MAX, SIZE_MAX, UFORM_DTYPE_F32, &placed, NULL);
    CHECK(huge == UFORM_STATUS_INVALID_ARGUMENT || huge == UFORM_STATUS_OUT_OF_MEMORY);
    huge = uform_arena_allocate(out, 1, (size_t)1 << 60, UFORM_DTYPE_F32, &placed, NULL);
    CHECK(huge == UFORM_STATUS_INVALID_ARGUMENT || huge == UFORM_STATUS_OUT_OF_MEMORY);
    SUCCEEDS(uform_arena_allocate, out, 4, 8, UFORM_DTYPE_F32, &placed);
    SUCCEEDS(uform_arena_allocate, other, 4, 8, UFORM_DTYPE_F32, &foreign);
    CHECK((uintptr_t)placed.data % 64 == 0 && placed.row_stride % 64 == 0 && placed.row_stride >= 32);
    memset(placed.data, 1, placed.row_stride);

    host = matrix(values, 4, 8, UFORM_DTYPE_F32);
    SUCCEEDS(uform_arena_copy_to_host, out, &placed, &host);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, NULL, &placed, &host);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, NULL, &host);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &placed, NULL);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &foreign, &host);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &host, &host);
    host.rows = 3;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &placed, &host);
    host.rows = 4;
    host.dtype = UFORM_DTYPE_I8;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &placed, &host);
    host.dtype = UFORM_DTYPE_F32;
    host.row_stride = 31;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &placed, &host);
    host.row_stride = SIZE_MAX / 2;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_copy_to_host, out, &placed, &host);
    host.row_stride = 0;
    host.reserved = 1;
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "reserved", uform_arena_copy_to_host, out, &placed, &host);
    host.reserved = 0;
    placed.reserved = 1;
    FAILS_SAYING(UFORM_STATUS_INVALID_ARGUMENT, "reserved", uform_arena_copy_to_host, out, &placed, &host);
    placed.reserved = 0;
    SUCCEEDS(uform_arena_allocate, out, SIZE_MAX, 0, UFORM_DTYPE_F32, &nothing);
    host.rows = SIZE_MAX;
    host.columns = 0;
    SUCCEEDS(uform_arena_copy_to_host, out, &nothing, &host); // rows without elements take no time either
    placed.rows = 5; // more than was placed
    host = matrix(values, 5, 6, UFORM_DTYPE_F32);
    placed.columns = 6;
    CHECK(uform_arena_copy_to_host(out, &placed, &host, NULL) == UFORM_STATUS_INVALID_ARGUMENT);

    SIZED(uform_arena_description_t, description);
    SUCCEEDS(uform_arena_describe, out, &description);
    CHECK(description.used_bytes >= 4 * 8 * 4 && description.reserved_bytes >= description.used_bytes);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_describe, NULL, &description);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_describe, out, NULL);
    description.size = 3;
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_describe, out, &description);
    FAILS(UFORM_STATUS_INVALID_ARGUMENT, uform_arena_reset, NULL);
    SUCCEEDS(uform_arena_reset, out);
    description.size = sizeof description;
    SUCCEEDS(uform_arena_describe, out, &description);
    CHECK(description.used_bytes == 0);
    uform_arena_free(other);
    uform_arena_free(out);
    uform_arena_free(NULL);
}

int main(int count, char **arguments) {
    uform_error_t error;
    if (count != 2) return fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    model_path = arguments[1];
    SIZED(uform_model_description_t, description);
    if (uform_model_load_ram(model_path, strlen(model_path), NULL, NULL, &model, &error) ||
        uform_model_describe(model, &description, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    dimensions = description.default_dimensions;

    classes();
    devices();
    executors();
    descriptions_of_every_age();
    loading();
    loading_bytes();
    asking_models();
    embedding_options();
    embedding_arguments();
    unaligned_memory();
    deferred_calls();
    failed_calls_end_quietly();
    arenas();
    uform_model_free(model);
    return test_result("misuse");
}
