// What the test programs share: checks that count, and short ways to say texts and zeroed structures. The programs
// compile as C99 to C17 and as C++17 alike.

#ifndef TEST_H
#define TEST_H

#include <uform.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_failures = 0;

/// Counts a failure and goes on.
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            ++test_failures;                                                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
        }                                                                                                              \
    } while (0)

/// The call, written without its error record, returns that status and, unless it is OK, fills the record. A failing
/// call is made once more with NULL for the record, and returns the same.
#define FAILS(expected, function, ...)                                                                                 \
    do {                                                                                                               \
        uform_error_t error_;                                                                                          \
        memset(&error_, 0x55, sizeof error_);                                                                          \
        uform_status_t status_ = function(__VA_ARGS__, &error_);                                                       \
        if (status_ != (expected) || error_.status != status_ || !test_sentence(&error_)) {                            \
            ++test_failures;                                                                                           \
            fprintf(                                                                                                   \
                stderr, "%s:%d: %s: expected %s, found %d: %.200s\n", __FILE__, __LINE__, #function, #expected,        \
                (int)status_, status_ ? error_.message : "");                                                          \
        } else {                                                                                                       \
            CHECK(function(__VA_ARGS__, NULL) == (expected));                                                          \
        }                                                                                                              \
    } while (0)

/// As FAILS, and the sentence has that part in it.
#define FAILS_SAYING(expected, part, function, ...)                                                                    \
    do {                                                                                                               \
        uform_error_t said_;                                                                                           \
        FAILS(expected, function, __VA_ARGS__);                                                                        \
        if (function(__VA_ARGS__, &said_) != UFORM_STATUS_OK && !strstr(said_.message, part)) {                        \
            ++test_failures;                                                                                           \
            fprintf(stderr, "%s:%d: expected '%s' in: %s\n", __FILE__, __LINE__, part, said_.message);                 \
        }                                                                                                              \
    } while (0)

/// The call, written without its error record, succeeds and leaves the record alone.
#define SUCCEEDS(function, ...)                                                                                        \
    do {                                                                                                               \
        uform_error_t error_;                                                                                          \
        error_.status = -12345;                                                                                        \
        uform_status_t status_ = function(__VA_ARGS__, &error_);                                                       \
        if (status_ != UFORM_STATUS_OK || error_.status != -12345) {                                                   \
            ++test_failures;                                                                                           \
            fprintf(                                                                                                   \
                stderr, "%s:%d: %s: expected OK, found %d: %.400s\n", __FILE__, __LINE__, #function, (int)status_,     \
                status_ ? error_.message : "the record was touched");                                                  \
        }                                                                                                              \
    } while (0)

/// A structure with all bytes zero but its size.
#define SIZED(type, name)                                                                                              \
    type name;                                                                                                         \
    memset(&name, 0, sizeof name);                                                                                     \
    name.size = sizeof name

static inline uform_text_t text(const char *value) {
    uform_text_t made;
    made.data = value;
    made.length = strlen(value);
    return made;
}

static inline uform_matrix_t matrix(void *data, size_t rows, size_t columns, uform_dtype_t dtype) {
    uform_matrix_t made;
    made.data = data;
    made.rows = rows;
    made.columns = columns;
    made.row_stride = 0;
    made.dtype = dtype;
    made.reserved = 0;
    return made;
}

/// Whether a record holds one line of text of the length that it says.
static inline int test_sentence(const uform_error_t *error) {
    return error->message_length > 0 && error->message_length < UFORM_ERROR_MESSAGE_CAPACITY &&
           strlen(error->message) == error->message_length && !strchr(error->message, '\n');
}

/// What a test program returns from main.
static inline int test_result(const char *name) {
    printf("%s: %s\n", name, test_failures ? "FAILED" : "ok");
    return test_failures != 0;
}

#endif
