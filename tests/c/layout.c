// The header as programs see it after compiling: sizes, offsets, numbers and the version, under every compiler and
// standard that it promises to work with.

#include "test.h"

#define STRUCTURE(type, bytes) CHECK(sizeof(type) == (bytes))
#define MEMBER(type, member, offset, bytes)                                                                            \
    CHECK(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (bytes))

/// What programs on 64-bit machines were compiled with. New members come last, in structures that carry their size.
static void sizes_and_offsets(void) {
    STRUCTURE(uform_arena_description_t, 32);
    MEMBER(uform_arena_description_t, size, 0, 8);
    MEMBER(uform_arena_description_t, residency, 8, 4);
    MEMBER(uform_arena_description_t, used_bytes, 16, 8);
    MEMBER(uform_arena_description_t, reserved_bytes, 24, 8);

    STRUCTURE(uform_embed_options_t, 104);
    MEMBER(uform_embed_options_t, size, 0, 8);
    MEMBER(uform_embed_options_t, role, 8, 4);
    MEMBER(uform_embed_options_t, normalize, 12, 4);
    MEMBER(uform_embed_options_t, length, 16, 4);
    MEMBER(uform_embed_options_t, reproducible, 20, 4);
    MEMBER(uform_embed_options_t, prompt_name, 24, 16);
    MEMBER(uform_embed_options_t, prompt, 40, 16);
    MEMBER(uform_embed_options_t, dimensions, 56, 8);
    MEMBER(uform_embed_options_t, token_limit, 64, 8);
    MEMBER(uform_embed_options_t, token_budget, 72, 8);
    MEMBER(uform_embed_options_t, output_scale, 80, 4);
    MEMBER(uform_embed_options_t, progress, 88, 8);
    MEMBER(uform_embed_options_t, progress_context, 96, 8);

    STRUCTURE(uform_error_t, 1032);
    MEMBER(uform_error_t, status, 0, 4);
    MEMBER(uform_error_t, message_length, 4, 4);
    MEMBER(uform_error_t, message, 8, 1024);

    STRUCTURE(uform_executor_description_t, 328);
    MEMBER(uform_executor_description_t, size, 0, 8);
    MEMBER(uform_executor_description_t, residency, 8, 4);
    MEMBER(uform_executor_description_t, cpu_class, 12, 4);
    MEMBER(uform_executor_description_t, gpu_class, 16, 4);
    MEMBER(uform_executor_description_t, mood, 20, 4);
    MEMBER(uform_executor_description_t, threads, 24, 8);
    MEMBER(uform_executor_description_t, deferred_limit, 32, 8);
    MEMBER(uform_executor_description_t, deferred_waiting, 40, 8);
    MEMBER(uform_executor_description_t, scratch_bytes, 48, 8);
    MEMBER(uform_executor_description_t, scratch_high_water_bytes, 56, 8);
    MEMBER(uform_executor_description_t, memory_domains_count, 64, 8);
    MEMBER(uform_executor_description_t, memory_domains, 72, 256);

    STRUCTURE(uform_file_t, 32);
    MEMBER(uform_file_t, name, 0, 16);
    MEMBER(uform_file_t, data, 16, 8);
    MEMBER(uform_file_t, length, 24, 8);

    STRUCTURE(uform_gpu_device_t, 280);
    MEMBER(uform_gpu_device_t, vendor, 0, 4);
    MEMBER(uform_gpu_device_t, vendor_ordinal, 4, 4);
    MEMBER(uform_gpu_device_t, gpu_class, 8, 4);
    MEMBER(uform_gpu_device_t, compute_units, 12, 4);
    MEMBER(uform_gpu_device_t, memory_bytes, 16, 8);
    MEMBER(uform_gpu_device_t, name, 24, 256);

    STRUCTURE(uform_load_options_t, 56);
    MEMBER(uform_load_options_t, size, 0, 8);
    MEMBER(uform_load_options_t, precision, 8, 4);
    MEMBER(uform_load_options_t, reading, 12, 4);
    MEMBER(uform_load_options_t, cpu_class, 16, 4);
    MEMBER(uform_load_options_t, memory_domains, 24, 8);
    MEMBER(uform_load_options_t, memory_domains_count, 32, 8);
    MEMBER(uform_load_options_t, progress, 40, 8);
    MEMBER(uform_load_options_t, progress_context, 48, 8);

    STRUCTURE(uform_matrix_t, 40);
    MEMBER(uform_matrix_t, data, 0, 8);
    MEMBER(uform_matrix_t, rows, 8, 8);
    MEMBER(uform_matrix_t, columns, 16, 8);
    MEMBER(uform_matrix_t, row_stride, 24, 8);
    MEMBER(uform_matrix_t, dtype, 32, 4);

    STRUCTURE(uform_model_description_t, 200);
    MEMBER(uform_model_description_t, size, 0, 8);
    MEMBER(uform_model_description_t, residency, 8, 4);
    MEMBER(uform_model_description_t, precision, 12, 4);
    MEMBER(uform_model_description_t, file_dtype, 16, 4);
    MEMBER(uform_model_description_t, normalized, 20, 4);
    MEMBER(uform_model_description_t, dimensions, 24, 8);
    MEMBER(uform_model_description_t, token_limit, 32, 8);
    MEMBER(uform_model_description_t, layers, 40, 8);
    MEMBER(uform_model_description_t, heads, 48, 8);
    MEMBER(uform_model_description_t, hidden, 56, 8);
    MEMBER(uform_model_description_t, vocabulary, 64, 8);
    MEMBER(uform_model_description_t, parameters, 72, 8);
    MEMBER(uform_model_description_t, weight_bytes, 80, 8);
    MEMBER(uform_model_description_t, architecture, 88, 16);
    MEMBER(uform_model_description_t, pooling, 104, 16);
    MEMBER(uform_model_description_t, similarity, 120, 16);
    MEMBER(uform_model_description_t, prompt_names, 136, 16);
    MEMBER(uform_model_description_t, default_prompt_name, 152, 16);
    MEMBER(uform_model_description_t, unread_keys, 168, 16);
    MEMBER(uform_model_description_t, default_dimensions, 184, 8);
    MEMBER(uform_model_description_t, intermediate, 192, 8);

    STRUCTURE(uform_report_t, 24);
    MEMBER(uform_report_t, status, 0, 4);
    MEMBER(uform_report_t, truncated, 4, 4);
    MEMBER(uform_report_t, tokens_found, 8, 8);
    MEMBER(uform_report_t, tokens_kept, 16, 8);

    STRUCTURE(uform_text_t, 16);
    MEMBER(uform_text_t, data, 0, 8);
    MEMBER(uform_text_t, length, 8, 8);

    STRUCTURE(uform_token_t, 24);
    MEMBER(uform_token_t, id, 0, 4);
    MEMBER(uform_token_t, special, 4, 4);
    MEMBER(uform_token_t, begin, 8, 8);
    MEMBER(uform_token_t, end, 16, 8);
}

/// Structures of options and descriptions begin with their size, so that any library can read it.
static void sizes_come_first(void) {
    CHECK(offsetof(uform_load_options_t, size) == 0);
    CHECK(offsetof(uform_embed_options_t, size) == 0);
    CHECK(offsetof(uform_executor_description_t, size) == 0);
    CHECK(offsetof(uform_model_description_t, size) == 0);
    CHECK(offsetof(uform_arena_description_t, size) == 0);
}

static void numbers(void) {
    CHECK(UFORM_STATUS_OK == 0 && UFORM_STATUS_ROW_FAILED == 6);
    CHECK(UFORM_STATUS_OUT_OF_MEMORY == 100 && UFORM_STATUS_DEVICE_LOST == 103);
    CHECK(UFORM_STATUS_CONTENDED == 200 && UFORM_STATUS_FORKED == 204 && UFORM_STATUS_INTERNAL == 900);
    CHECK(UFORM_CPU_CLASS_SERIAL == 1 && UFORM_CPU_CLASS_MONOVERSIONED == 18);
    CHECK(UFORM_GPU_CLASS_NVIDIA_AMPERE == 1 && UFORM_GPU_CLASS_APPLE_METAL10 == 12);
    CHECK(UFORM_MOOD_PARKED == 0 && UFORM_MOOD_SPINNING == 1);
    CHECK(UFORM_DTYPE_F32 == 1 && UFORM_DTYPE_B1 == 6);
    CHECK(sizeof(uform_status_t) == 4 && sizeof(uform_cpu_class_t) == 4 && sizeof(uform_dtype_t) == 4);
    CHECK((uform_status_t)-1 < 0);
}

/// The library that runs is of the version that the header was written for.
static void version(void) {
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", UFORM_VERSION_MAJOR, UFORM_VERSION_MINOR, UFORM_VERSION_PATCH);
    CHECK(strcmp(uform_version(), expected) == 0);
    CHECK(uform_version() == uform_version());
}

int main(void) {
    if (sizeof(void *) == 8) sizes_and_offsets();
    sizes_come_first();
    numbers();
    version();
    return test_result("layout");
}
