// Runs tests/conformance/cases.json through the C interface; README.md beside that file says what the keys mean.
// Usage: conformance DIRECTORY

#include "test.h"

#include <cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>

enum { most_files = 32, most_texts = 128 };

static const char *directory;
static const char *case_name;
static int case_failed;
static int passed, failed;

static void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", case_name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    case_failed = 1;
}

static void fatal(const char *what, const char *which) {
    fprintf(stderr, "conformance: %s: %s\n", what, which);
    exit(2);
}

static void *need(void *memory) {
    if (!memory) fatal("out of memory", "malloc");
    return memory;
}

/// A path as snprintf writes it; one that does not fit ends the run.
#define PATH(path, ...)                                                                                                \
    do {                                                                                                               \
        if ((size_t)snprintf(path, sizeof path, __VA_ARGS__) >= sizeof path) fatal("path too long", path);             \
    } while (0)

// Bytes -----------------------------------------------------------------------------------------------------------

typedef struct {
    unsigned char *data;
    size_t length;
} bytes_t;

static bytes_t read_file(const char *path) {
    bytes_t bytes = {NULL, 0};
    FILE *file = fopen(path, "rb");
    long length = -1;
    if (file && fseek(file, 0, SEEK_END) == 0) length = ftell(file);
    if (length < 0) fatal("cannot read", path);
    rewind(file);
    bytes.length = (size_t)length;
    bytes.data = (unsigned char *)need(malloc(bytes.length + 1));
    if (fread(bytes.data, 1, bytes.length, file) != bytes.length) fatal("cannot read", path);
    bytes.data[bytes.length] = 0;
    fclose(file);
    return bytes;
}

static int digit(char letter) {
    const char *digits = "0123456789abcdef", *found = letter ? strchr(digits, letter) : NULL;
    if (!found) fatal("not a hexadecimal digit in", case_name);
    return (int)(found - digits);
}

static bytes_t from_hex(const char *text) {
    bytes_t bytes;
    bytes.length = strlen(text) / 2;
    bytes.data = (unsigned char *)need(malloc(bytes.length + 1));
    for (size_t i = 0; i < bytes.length; i++)
        bytes.data[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return bytes;
}

// JSON ------------------------------------------------------------------------------------------------------------

/// Fails the run when an object has a key that is not in the list, which ends with NULL.
static void only_keys(const cJSON *object, const char *const *known) {
    const cJSON *each;
    cJSON_ArrayForEach(each, object) {
        const char *const *key = known;
        while (*key && strcmp(*key, each->string) != 0)
            key++;
        if (!*key) wrong("unknown key '%s'", each->string);
    }
}

static const cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *string(const cJSON *object, const char *key, const char *fallback) {
    const char *value = cJSON_GetStringValue(member(object, key));
    return value ? value : fallback;
}

static double number(const cJSON *object, const char *key, double fallback) {
    const cJSON *value = member(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : fallback;
}

/// The number of a name in a list, which ends with NULL.
static int32_t choice(const char *name, const char *const *names, int32_t first) {
    for (int32_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return first + i;
    wrong("unknown name '%s'", name);
    return first;
}

static uform_status_t status_of(const char *name) {
    static const struct {
        const char *name;
        uform_status_t status;
    } all[] = {
        {"OK", UFORM_STATUS_OK},
        {"INVALID_ARGUMENT", UFORM_STATUS_INVALID_ARGUMENT},
        {"UNSUPPORTED", UFORM_STATUS_UNSUPPORTED},
        {"BUFFER_TOO_SMALL", UFORM_STATUS_BUFFER_TOO_SMALL},
        {"NOT_FOUND", UFORM_STATUS_NOT_FOUND},
        {"CORRUPT_DATA", UFORM_STATUS_CORRUPT_DATA},
        {"ROW_FAILED", UFORM_STATUS_ROW_FAILED},
        {"IO", UFORM_STATUS_IO},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].status;
    wrong("unknown status '%s'", name);
    return -1;
}

// Models ----------------------------------------------------------------------------------------------------------

typedef struct {
    char name[128];
    bytes_t bytes;
} named_t;

/// The files of a derived model. `count` of them are in use.
typedef struct {
    named_t files[most_files];
    size_t count;
} files_t;

static named_t *find(files_t *files, const char *name) {
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0) return &files->files[i];
    return NULL;
}

static named_t *need_file(files_t *files, const char *name) {
    named_t *file = find(files, name);
    if (!file) fatal("derive names a file that is not there", name);
    return file;
}

static void add_file(files_t *files, const char *name, bytes_t bytes) {
    named_t *file = find(files, name);
    if (!file) {
        if (files->count == most_files || strlen(name) >= sizeof file->name) fatal("too many or too long", name);
        file = &files->files[files->count++];
        strcpy(file->name, name);
        file->bytes.data = NULL;
    }
    free(file->bytes.data);
    file->bytes = bytes;
}

static void derive(files_t *files, const cJSON *model, const char *folder, const cJSON *rules) {
    static const char *const keys[] = {"remove", "replace", "patch", "truncate", NULL};
    const cJSON *each;
    char path[1024];
    only_keys(rules, keys);
    cJSON_ArrayForEach(each, member(model, "files")) {
        PATH(path, "%s/%s", folder, each->valuestring);
        add_file(files, each->valuestring, read_file(path));
    }
    cJSON_ArrayForEach(each, member(rules, "remove")) {
        named_t *file = need_file(files, each->valuestring);
        free(file->bytes.data);
        *file = files->files[--files->count];
    }
    cJSON_ArrayForEach(each, member(rules, "replace")) {
        bytes_t bytes;
        bytes.length = strlen(each->valuestring);
        bytes.data = (unsigned char *)need(malloc(bytes.length + 1));
        memcpy(bytes.data, each->valuestring, bytes.length + 1);
        add_file(files, each->string, bytes);
    }
    cJSON_ArrayForEach(each, member(rules, "patch")) {
        named_t *file = need_file(files, string(each, "file", ""));
        bytes_t patch = from_hex(string(each, "hex", ""));
        size_t offset = (size_t)number(each, "offset", 0);
        if (offset + patch.length > file->bytes.length) fatal("a patch beyond the end in", case_name);
        memcpy(file->bytes.data + offset, patch.data, patch.length);
        free(patch.data);
    }
    cJSON_ArrayForEach(each, member(rules, "truncate")) {
        need_file(files, each->string)->bytes.length = (size_t)each->valuedouble;
    }
}

static uform_status_t load(const cJSON *it, const cJSON *models, uform_model_t **model, uform_error_t *error) {
    const char *name = string(it, "model", "");
    const cJSON *rules = member(it, "derive");
    char path[1024];
    SIZED(uform_load_options_t, options);
    static const char *const precisions[] = {"auto", "f32", "bf16", "f16", "i8", NULL};
    options.precision = choice(string(it, "precision", "auto"), precisions, UFORM_PRECISION_AUTO);
    PATH(path, "%s/models/%s", directory, name);
    if (!rules) {
        const char *file = string(it, "path", NULL);
        if (file) PATH(path, "%s/models/%s/%s", directory, name, file);
        return uform_model_load_ram(path, strlen(path), NULL, &options, model, error);
    }
    files_t files;
    uform_file_t raw[most_files];
    files.count = 0;
    derive(&files, member(models, name), path, rules);
    for (size_t i = 0; i < files.count; i++) {
        raw[i].name = text(files.files[i].name);
        raw[i].data = files.files[i].bytes.data;
        raw[i].length = files.files[i].bytes.length;
    }
    uform_status_t status = uform_model_load_ram_from_bytes(raw, files.count, NULL, &options, model, error);
    for (size_t i = 0; i < files.count; i++)
        free(files.files[i].bytes.data);
    return status;
}

/// Compares status and sentence. Says whether the call was expected to succeed and did.
static int went_well(const cJSON *expect, uform_status_t status, const uform_error_t *error) {
    uform_status_t expected = status_of(string(expect, "status", "OK"));
    const cJSON *each;
    if (status != expected) {
        wrong("expected status %d, found %d: %s", (int)expected, (int)status, status ? error->message : "");
        return 0;
    }
    cJSON_ArrayForEach(each, member(expect, "message_contains")) {
        if (status == UFORM_STATUS_OK || !strstr(error->message, each->valuestring))
            wrong("expected '%s' in: %s", each->valuestring, status ? error->message : "");
    }
    return status == UFORM_STATUS_OK;
}

// Options and texts -------------------------------------------------------------------------------------------------

static uform_dtype_t read_options(const cJSON *from, uform_embed_options_t *options) {
    static const char *const keys[] = {
        "role", "prompt_name", "prompt", "dimensions", "token_limit", "normalize", "length", "dtype", NULL};
    static const char *const roles[] = {"as-given", "query", "document", NULL};
    static const char *const normalize[] = {"model", "yes", "no", NULL};
    static const char *const lengths[] = {"truncate", "refuse", NULL};
    static const char *const dtypes[] = {"f32", "f16", "bf16", "i8", "u8", "b1", NULL};
    only_keys(from, keys);
    options->role = choice(string(from, "role", "as-given"), roles, 0);
    options->normalize = choice(string(from, "normalize", "model"), normalize, 0);
    options->length = choice(string(from, "length", "truncate"), lengths, 0);
    options->dimensions = (size_t)number(from, "dimensions", 0);
    options->token_limit = (size_t)number(from, "token_limit", 0);
    if (member(from, "prompt_name")) options->prompt_name = text(string(from, "prompt_name", ""));
    if (member(from, "prompt")) options->prompt = text(string(from, "prompt", ""));
    return choice(string(from, "dtype", "f32"), dtypes, UFORM_DTYPE_F32);
}

/// Texts as bytes of our own; JSON strings may hold the character zero, which cJSON ends strings at, so that such texts
/// stand as \u0000 in the file and are put back from `zero`.
typedef struct {
    uform_text_t texts[most_texts];
    unsigned char *owned[most_texts];
    size_t count;
} texts_t;

static const char zero[] = "\xef\xb7\x90"; // U+FDD0, which no text may use

static void read_texts(const cJSON *from, texts_t *texts) {
    const cJSON *each;
    texts->count = 0;
    cJSON_ArrayForEach(each, from) {
        const char *hex = string(each, "hex", NULL);
        bytes_t bytes = {NULL, 0};
        if (texts->count == most_texts) fatal("too many texts in", case_name);
        if (hex) {
            bytes = from_hex(hex);
        } else {
            const char *letter = each->valuestring;
            bytes.data = (unsigned char *)need(malloc(strlen(letter) + 1));
            while (*letter) {
                int is_zero = strncmp(letter, zero, 3) == 0;
                bytes.data[bytes.length++] = is_zero ? 0 : (unsigned char)*letter;
                letter += is_zero ? 3 : 1;
            }
        }
        texts->texts[texts->count].data = (const char *)bytes.data;
        texts->texts[texts->count].length = bytes.length;
        texts->owned[texts->count++] = bytes.data;
    }
}

static void free_texts(texts_t *texts) {
    for (size_t i = 0; i < texts->count; i++)
        free(texts->owned[i]);
}

// Verbs -----------------------------------------------------------------------------------------------------------

/// Bytes of a row.
static size_t row_bytes(uform_dtype_t dtype, size_t columns) {
    if (dtype == UFORM_DTYPE_F32) return columns * 4;
    if (dtype == UFORM_DTYPE_F16 || dtype == UFORM_DTYPE_BF16) return columns * 2;
    return dtype == UFORM_DTYPE_B1 ? (columns + 7) / 8 : columns;
}

/// The element as a number: f32 itself, other types as the whole number of their bits.
static double element(const unsigned char *row, size_t index, uform_dtype_t dtype) {
    float real;
    if (dtype == UFORM_DTYPE_F32) return memcpy(&real, row + index * 4, 4), (double)real;
    if (dtype == UFORM_DTYPE_F16 || dtype == UFORM_DTYPE_BF16) return row[index * 2] | row[index * 2 + 1] << 8;
    return dtype == UFORM_DTYPE_I8 ? (double)(signed char)row[index] : (double)row[index];
}

/// Compares a row and answers its largest difference.
static double compare_row(
    size_t index, const cJSON *expected, const unsigned char *row, uform_dtype_t dtype, size_t columns,
    double allowed) {
    size_t bytes = row_bytes(dtype, columns), elements = dtype == UFORM_DTYPE_B1 ? bytes : columns;
    const char *hex = string(expected, "vector", NULL);
    double largest = 0;
    if (!hex) return largest;
    bytes_t vector = from_hex(hex);
    if (vector.length != bytes) wrong("row %zu: expected %zu bytes, found %zu", index, vector.length, bytes);
    for (size_t i = 0; i < elements && vector.length == bytes; i++) {
        double difference = fabs(element(row, i, dtype) - element(vector.data, i, dtype));
        if (difference > largest) largest = difference;
        if (!(difference <= (dtype == UFORM_DTYPE_B1 ? 0 : allowed))) {
            wrong("row %zu, element %zu: differs by %g, allowed is %g", index, i, difference, allowed);
            break;
        }
    }
    free(vector.data);
    return largest;
}

static void compare_report(size_t index, const cJSON *expected, const uform_report_t *report) {
    static const char *const keys[] = {"status", "tokens_found", "tokens_kept", "truncated", "vector", NULL};
    uform_status_t status = status_of(string(expected, "status", "OK"));
    only_keys(expected, keys);
    if (report->status != status) wrong("row %zu: expected %d, found %d", index, (int)status, (int)report->status);
    if (member(expected, "tokens_found") && report->tokens_found != (uint64_t)number(expected, "tokens_found", 0))
        wrong("row %zu: tokens found: %llu", index, (unsigned long long)report->tokens_found);
    if (member(expected, "tokens_kept") && report->tokens_kept != (uint64_t)number(expected, "tokens_kept", 0))
        wrong("row %zu: tokens kept: %llu", index, (unsigned long long)report->tokens_kept);
    if (member(expected, "truncated") && (report->truncated != 0) != cJSON_IsTrue(member(expected, "truncated")))
        wrong("row %zu: truncated: %u", index, (unsigned)report->truncated);
}

static void check_not_a_number(size_t index, const unsigned char *row, size_t columns) {
    for (size_t i = 0; i < columns; i++)
        if (!isnan(element(row, i, UFORM_DTYPE_F32))) {
            wrong("row %zu: expected NaN in element %zu", index, i);
            return;
        }
}

static void embed(const cJSON *it, const cJSON *expect, const uform_model_t *model, const texts_t *texts) {
    uform_error_t error;
    uform_report_t reports[most_texts], report;
    SIZED(uform_embed_options_t, options);
    SIZED(uform_model_description_t, description);
    uform_dtype_t dtype = read_options(member(it, "options"), &options);
    int reported = !cJSON_IsFalse(member(it, "reports"));
    SUCCEEDS(uform_model_describe, model, &description);
    size_t columns = options.dimensions ? options.dimensions : description.default_dimensions;
    size_t bytes = row_bytes(dtype, columns);
    unsigned char *values = (unsigned char *)need(malloc(texts->count * bytes + 1));
    unsigned char *again = (unsigned char *)need(malloc(bytes + 1));
    uform_matrix_t output = matrix(values, texts->count, columns, dtype), one = matrix(again, 1, columns, dtype);
    uform_status_t status = uform_embed_texts(
        model, NULL, texts->texts, texts->count, &options, &output, reported ? reports : NULL, &error);
    if (went_well(expect, status, &error)) {
        if (number(expect, "dimensions", 0) != (double)columns) wrong("found %zu columns", columns);
        if (number(expect, "token_limit", 0) != (double)description.token_limit)
            wrong("found a token limit of %zu", description.token_limit);
        if (cJSON_GetArraySize(member(expect, "rows")) != (int)texts->count) wrong("expected as many rows as texts");
        const cJSON *row = member(expect, "rows") ? member(expect, "rows")->child : NULL;
        double allowed = number(expect, "difference", 0), largest = 0;
        for (size_t i = 0; row && i < texts->count; i++, row = row->next) {
            if (reported) compare_report(i, row, &reports[i]);
            int sound = status_of(string(row, "status", "OK")) == UFORM_STATUS_OK;
            if (sound) largest = fmax(largest, compare_row(i, row, values + i * bytes, dtype, columns, allowed));
            if (!sound && dtype == UFORM_DTYPE_F32) check_not_a_number(i, values + i * bytes, columns);
            status = uform_embed_texts(model, NULL, &texts->texts[i], 1, &options, &one, &report, &error);
            if (status || memcmp(again, values + i * bytes, bytes) != 0) wrong("row %zu: other bits when alone", i);
        }
        if (largest < number(expect, "least_difference", 0)) wrong("the largest difference is only %g", largest);
    }
    free(values);
    free(again);
}

static void tokenize(const cJSON *it, const cJSON *expect, const uform_model_t *model, const texts_t *texts) {
    enum { most_tokens = 4096 };
    static uform_token_t tokens[most_tokens];
    uform_error_t error;
    const cJSON *row = member(expect, "tokens") ? member(expect, "tokens")->child : NULL;
    SIZED(uform_embed_options_t, options);
    read_options(member(it, "options"), &options);
    for (size_t i = 0; i < texts->count; i++, row = row ? row->next : NULL) {
        size_t count = 0;
        uform_status_t status = uform_model_tokenize(
            model, texts->texts[i].data, texts->texts[i].length, &options, tokens, most_tokens, &count, &error);
        if (!went_well(expect, status, &error)) continue;
        if (cJSON_GetArraySize(row) != (int)count) {
            wrong("text %zu: expected %d tokens, found %zu", i, cJSON_GetArraySize(row), count);
            continue;
        }
        for (size_t k = 0; k < count; k++) {
            const cJSON *token = cJSON_GetArrayItem(row, (int)k), *special = cJSON_GetArrayItem(token, 3);
            int same = cJSON_GetArrayItem(token, 0)->valuedouble == (double)tokens[k].id &&
                       cJSON_GetArrayItem(token, 1)->valuedouble == (double)tokens[k].begin &&
                       cJSON_GetArrayItem(token, 2)->valuedouble == (double)tokens[k].end &&
                       (cJSON_IsNull(special) || cJSON_IsTrue(special) == (tokens[k].special == 1));
            if (!same)
                wrong(
                    "text %zu, token %zu: found [%u, %llu, %llu, %u]", i, k, (unsigned)tokens[k].id,
                    (unsigned long long)tokens[k].begin, (unsigned long long)tokens[k].end,
                    (unsigned)tokens[k].special);
        }
    }
}

static void run_case(const cJSON *it, const cJSON *models) {
    static const char *const keys[] = {
        "name",    "verb",  "model",  "path",    "derive", "precision",
        "options", "texts", "expect", "reports", NULL};
    static const char *const expected[] = {
        "status",           "message_contains", "dimensions", "token_limit", "difference",
        "least_difference", "rows",             "tokens",     NULL};
    const cJSON *expect = member(it, "expect");
    const char *verb = string(it, "verb", "");
    uform_error_t error;
    uform_model_t *model = NULL;
    texts_t texts;
    case_name = string(it, "name", "?");
    case_failed = 0;
    only_keys(it, keys);
    only_keys(expect, expected);
    read_texts(member(it, "texts"), &texts);
    uform_status_t status = load(it, models, &model, &error);
    if (strcmp(verb, "load") == 0)
        went_well(expect, status, &error);
    else if (status != UFORM_STATUS_OK)
        wrong("cannot load: %s", error.message);
    else if (strcmp(verb, "embed") == 0)
        embed(it, expect, model, &texts);
    else if (strcmp(verb, "tokenize") == 0)
        tokenize(it, expect, model, &texts);
    else
        wrong("unknown verb '%s'", verb);
    uform_model_free(model);
    free_texts(&texts);
    if (case_failed)
        failed++;
    else
        passed++;
}

/// Stands in for the character zero in the strings of a JSON text, in place: \u0000 becomes \ufdd0.
static void keep_zeros(char *json) {
    for (char *found = json; (found = strstr(found, "\\u0000")); found += 6) {
        size_t slashes = 1;
        while (found - slashes >= json && found[-(ptrdiff_t)slashes] == '\\')
            slashes++;
        if (slashes % 2) memcpy(found, "\\ufdd0", 6);
    }
}

int main(int count, char **arguments) {
    char path[1024];
    if (count != 2) return fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]), 2;
    directory = arguments[1];
    PATH(path, "%s/cases.json", directory);
    bytes_t bytes = read_file(path);
    if (strstr((const char *)bytes.data, "\\ufdd0")) fatal("U+FDD0 is taken", path);
    keep_zeros((char *)bytes.data);
    cJSON *json = cJSON_Parse((const char *)bytes.data);
    if (!json) fatal("not JSON", path);
    const cJSON *each;
    cJSON_ArrayForEach(each, member(json, "cases")) run_case(each, member(json, "models"));
    cJSON_Delete(json);
    free(bytes.data);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    CHECK(passed > 0 && failed == 0);
    return test_result("conformance");
}
