// Many threads at once: models are shared, executors are not, deferred calls end in every way there is, and the same
// text always gives the same bits. Usage: threads MODEL

#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef TEST_SHORT // where everything takes fifty times as long
enum { threads_count = 3, rounds = 2, texts_count = 6, frees = 3, calls_count = 4 };
#else
enum { threads_count = 6, rounds = 4, texts_count = 24, frees = 8, calls_count = 12 };
#endif
enum { most = 1024 };

static uform_model_t *model;
static size_t dimensions;
static uform_text_t texts[texts_count];
static char letters[texts_count][256];
static float expected[texts_count * most];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/// Texts of one to many words, so that rows differ in length.
static void write_texts(void) {
    const char *words[] = {"river", "the", "quick", "of", "embedding", "cat", "Zurich", "42"};
    for (int i = 0; i < texts_count; i++) {
        letters[i][0] = 0;
        for (int word = 0; word <= i % 11 * 2; word++) {
            strcat(letters[i], words[(i * 5 + word * 3) % 8]);
            strcat(letters[i], " ");
        }
        texts[i] = text(letters[i]);
    }
}

static float *new_output(void) {
    float *values = (float *)malloc(sizeof(float) * texts_count * dimensions);
    if (!values) abort();
    return values;
}

static int as_expected(const float *values) {
    return memcmp(values, expected, sizeof(float) * texts_count * dimensions) == 0;
}

/// One thread of its own executor, or of none when `context` says so.
static void *embed_on_a_thread(void *context) {
    int number = *(int *)context, failures = 0;
    uform_executor_t *executor = NULL;
    uform_model_t *mine = NULL;
    float *values = new_output();
    uform_matrix_t output = matrix(values, texts_count, dimensions, UFORM_DTYPE_F32);
    if (number % 3) failures += uform_executor_for_ram(NULL, 0, 0, (size_t)(number % 3), 0, &executor, NULL) != 0;
    failures += uform_model_clone(model, &mine, NULL) != UFORM_STATUS_OK;
    for (int round = 0; round < rounds; round++) {
        memset(values, 0, sizeof(float) * texts_count * dimensions);
        failures += uform_executor_drain(executor, round % 2, NULL) != UFORM_STATUS_OK;
        failures += uform_embed_texts(mine, executor, texts, texts_count, NULL, &output, NULL, NULL) != UFORM_STATUS_OK;
        failures += !as_expected(values);
    }
    uform_model_free(mine);
    uform_executor_free(executor);
    free(values);
    pthread_mutex_lock(&lock);
    CHECK(failures == 0);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void separate_executors(void) {
    pthread_t threads[threads_count];
    int numbers[threads_count];
    for (int i = 0; i < threads_count; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, embed_on_a_thread, &numbers[i])) abort();
    }
    for (int i = 0; i < threads_count; i++)
        pthread_join(threads[i], NULL);
}

/// What a callback was told, and how often.
typedef struct {
    int times;
    uform_status_t status;
    int sentence;
} told_t;

static void note(void *context, uform_status_t status, const uform_error_t *error) {
    told_t *told = (told_t *)context;
    SIZED(uform_model_description_t, description);
    uform_status_t asked = uform_model_describe(model, &description, NULL); // callbacks may call back
    pthread_mutex_lock(&lock);
    told->times++;
    told->status = asked == UFORM_STATUS_OK ? status : asked;
    told->sentence = error ? test_sentence(error) : -1;
    pthread_mutex_unlock(&lock);
}

/// Waits until the callback was called, which may be a little after the call has ended.
static told_t read_told(told_t *told) {
    told_t copy;
    for (int waited = 0;; waited++) {
        struct timespec moment = {0, 1000000};
        pthread_mutex_lock(&lock);
        copy = *told;
        pthread_mutex_unlock(&lock);
        if (copy.times || waited == 20000) return copy;
        nanosleep(&moment, NULL);
    }
}

/// A progress callback that holds its call back until it is let go.
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int reached, released;
} gate_t;

static int32_t hold(void *context, uint64_t done, uint64_t total) {
    gate_t *gate = (gate_t *)context;
    (void)done, (void)total;
    pthread_mutex_lock(&gate->mutex);
    gate->reached = 1;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->released)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    return 0;
}

static void gate_wait(gate_t *gate) {
    pthread_mutex_lock(&gate->mutex);
    while (!gate->reached)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(gate_t *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->released = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

/// Submits the texts; `options` may be NULL.
static uform_deferred_t *submit(uform_executor_t *executor, const uform_embed_options_t *options, float *values) {
    uform_deferred_t *deferred = NULL;
    uform_matrix_t output = matrix(values, texts_count, dimensions, UFORM_DTYPE_F32);
    SUCCEEDS(uform_embed_texts_deferred, model, executor, texts, texts_count, options, &output, NULL, &deferred);
    return deferred;
}

/// Submits the texts with a call that stands in the gate until it is opened.
static uform_deferred_t *submit_held(uform_executor_t *executor, gate_t *gate, size_t token_budget, float *values) {
    SIZED(uform_embed_options_t, options);
    options.token_budget = token_budget;
    memset(gate, 0, sizeof *gate);
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->changed, NULL);
    options.progress = hold;
    options.progress_context = gate;
    uform_deferred_t *deferred = submit(executor, &options, values);
    gate_wait(gate);
    return deferred;
}

static void gate_end(gate_t *gate) {
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->mutex);
}

/// Calls end in the order of submission, each with its own result.
static void many_deferred_calls(void) {
    uform_executor_t *executor = NULL;
    uform_deferred_t *deferred[calls_count];
    float *values[calls_count];
    told_t told[calls_count];
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 2, calls_count, &executor);
    memset(told, 0, sizeof told);
    for (int i = 0; i < calls_count; i++) {
        values[i] = new_output();
        deferred[i] = submit(executor, NULL, values[i]);
        SUCCEEDS(uform_deferred_on_done, deferred[i], note, &told[i]);
    }
    SUCCEEDS(uform_deferred_wait, deferred[calls_count - 1], -1.0);
    for (int i = 0; i < calls_count; i++) {
        uform_status_t status = -1;
        SUCCEEDS(uform_deferred_poll, deferred[i], &status); // the last has ended, so all have
        CHECK(status == UFORM_STATUS_OK && as_expected(values[i]));
    }
    SUCCEEDS(uform_executor_drain, executor, UFORM_MOOD_PARKED);
    for (int i = 0; i < calls_count; i++) {
        told_t copy = read_told(&told[i]);
        CHECK(copy.times == 1 && copy.status == UFORM_STATUS_OK && copy.sentence == -1);
        uform_deferred_free(deferred[i]);
        free(values[i]);
    }
    uform_executor_free(executor);
}

/// A full table refuses, a wait runs out, a queued call is cancelled, and the running one is not disturbed.
static void limits_and_cancelling(void) {
    uform_executor_t *executor = NULL;
    uform_deferred_t *extra = (uform_deferred_t *)&extra;
    uform_status_t status = -1;
    gate_t gate;
    told_t told;
    float *values[3];
    for (int i = 0; i < 3; i++)
        values[i] = new_output();
    memset(&told, 0, sizeof told);
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 2, 2, &executor);
    uform_deferred_t *running = submit_held(executor, &gate, 0, values[0]);
    uform_deferred_t *queued = submit(executor, NULL, values[1]);

    uform_matrix_t output = matrix(values[2], texts_count, dimensions, UFORM_DTYPE_F32);
    FAILS(
        UFORM_STATUS_CONTENDED, uform_embed_texts_deferred, model, executor, texts, texts_count, NULL, &output, NULL,
        &extra);
    CHECK(extra == NULL);
    SIZED(uform_executor_description_t, description);
    SUCCEEDS(uform_executor_describe, executor, &description);
    CHECK(description.deferred_waiting == 2 && description.deferred_limit == 2);
    SUCCEEDS(uform_deferred_poll, running, &status);
    CHECK(status == UFORM_STATUS_PENDING);
    FAILS(UFORM_STATUS_TIMED_OUT, uform_deferred_wait, running, 0.0);
    FAILS(UFORM_STATUS_TIMED_OUT, uform_deferred_wait, queued, 0.01);

    SUCCEEDS(uform_deferred_on_done, queued, note, &told);
    SUCCEEDS(uform_deferred_cancel, queued); // before it started
    gate_open(&gate);
    SUCCEEDS(uform_deferred_wait, running, 1e9);
    CHECK(as_expected(values[0]));
    FAILS(UFORM_STATUS_CANCELLED, uform_deferred_wait, queued, -1.0);
    SUCCEEDS(uform_deferred_cancel, running); // after it ended
    SUCCEEDS(uform_deferred_wait, running, 0.0);
    SUCCEEDS(uform_executor_drain, executor, UFORM_MOOD_PARKED);
    told_t copy = read_told(&told);
    CHECK(copy.times == 1 && copy.status == UFORM_STATUS_CANCELLED && copy.sentence == 1);
    uform_deferred_free(running);
    uform_deferred_free(queued);
    gate_end(&gate);

    // The room of both is free again, and a running call is cancelled at its next block.
    running = submit_held(executor, &gate, 8, values[0]);
    SUCCEEDS(uform_deferred_cancel, running);
    gate_open(&gate);
    status = uform_deferred_wait(running, -1, NULL);
    CHECK(status == UFORM_STATUS_CANCELLED || (status == UFORM_STATUS_OK && as_expected(values[0])));
    uform_deferred_free(running);
    gate_end(&gate);
    uform_executor_free(executor);
    for (int i = 0; i < 3; i++)
        free(values[i]);
}

/// After a handle is freed nothing touches its memory, wherever the call stood. Memory checkers look closely here.
static void freed_in_flight(void) {
    uform_executor_t *executor = NULL;
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 2, 0, &executor);
    for (int round = 0; round < frees; round++) {
        uform_deferred_t *deferred[3];
        float *values[3];
        for (int i = 0; i < 3; i++) {
            values[i] = new_output();
            deferred[i] = submit(executor, NULL, values[i]);
        }
        if (round % 2) {
            struct timespec moment = {0, 1000000 * round};
            nanosleep(&moment, NULL);
        }
        for (int i = 0; i < 3; i++) { // the first may run, the others wait for their turn
            int which = round % 3 == 0 ? 2 - i : i;
            uform_deferred_free(deferred[which]);
            memset(values[which], 0xff, sizeof(float) * texts_count * dimensions);
            free(values[which]);
        }
    }
    uform_executor_free(executor);
}

/// Freeing an executor runs what was submitted; handles keep the results, and models may go before their calls end.
static void executor_goes_first(void) {
    uform_executor_t *executor = NULL;
    uform_model_t *mine = NULL;
    uform_deferred_t *deferred[4];
    float *values[4];
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 1, 0, &executor);
    SUCCEEDS(uform_model_clone, model, &mine);
    for (int i = 0; i < 4; i++) {
        values[i] = new_output();
        uform_matrix_t output = matrix(values[i], texts_count, dimensions, UFORM_DTYPE_F32);
        SUCCEEDS(uform_embed_texts_deferred, mine, executor, texts, texts_count, NULL, &output, NULL, &deferred[i]);
    }
    uform_model_free(mine);
    uform_executor_free(executor);
    for (int i = 0; i < 4; i++) {
        uform_status_t status = -1;
        SUCCEEDS(uform_deferred_poll, deferred[i], &status);
        CHECK(status == UFORM_STATUS_OK && as_expected(values[i]));
        uform_deferred_free(deferred[i]);
        free(values[i]);
    }
}

static void ignore_warning(void *context, const char *message, size_t length) {
    (void)context, (void)message, (void)length;
}

static void *change_the_log(void *context) {
    for (int i = 0; i < 200; i++)
        uform_log_callback(i % 2 ? ignore_warning : NULL, context, NULL);
    uform_log_callback(NULL, NULL, NULL);
    return NULL;
}

static void log_changes_meanwhile(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, change_the_log, NULL)) abort();
    for (int i = 0; i < 5; i++) {
        uform_model_t *none = NULL;
        CHECK(uform_model_load_ram("no/such/model", 13, NULL, NULL, &none, NULL) == UFORM_STATUS_NOT_FOUND);
    }
    pthread_join(thread, NULL);
}

#ifndef TEST_SHORT
/// In a forked child the executor of the parent says so, and models and new executors work.
static void forked_child(void) {
    uform_executor_t *executor = NULL, *fresh = NULL;
    float *values = new_output();
    uform_matrix_t output = matrix(values, texts_count, dimensions, UFORM_DTYPE_F32);
    SUCCEEDS(uform_executor_for_ram, NULL, 0, 0, 2, 0, &executor);
    SUCCEEDS(uform_embed_texts, model, executor, texts, texts_count, NULL, &output, NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); // a child that hangs must not hang the test
        int wrong = 0;
        if (uform_embed_texts(model, executor, texts, texts_count, NULL, &output, NULL, NULL) != UFORM_STATUS_FORKED)
            wrong |= 1;
        if (uform_executor_drain(executor, UFORM_MOOD_PARKED, NULL) != UFORM_STATUS_FORKED) wrong |= 2;
        uform_executor_free(executor);
        memset(values, 0, sizeof(float) * texts_count * dimensions);
        if (uform_executor_for_ram(NULL, 0, 0, 2, 0, &fresh, NULL) != UFORM_STATUS_OK) wrong |= 4;
        if (uform_embed_texts(model, fresh, texts, texts_count, NULL, &output, NULL, NULL) != UFORM_STATUS_OK)
            wrong |= 8;
        if (!as_expected(values)) wrong |= 16;
        uform_executor_free(fresh);
        _exit(wrong);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (status) fprintf(stderr, "the child ended with %d\n", status);
    SUCCEEDS(uform_embed_texts, model, executor, texts, texts_count, NULL, &output, NULL);
    CHECK(as_expected(values));
    uform_executor_free(executor);
    free(values);
}
#endif

int main(int count, char **arguments) {
    uform_error_t error;
    if (count != 2) return fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    SIZED(uform_model_description_t, description);
    if (uform_model_load_ram(arguments[1], strlen(arguments[1]), NULL, NULL, &model, &error) ||
        uform_model_describe(model, &description, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    dimensions = description.default_dimensions;
    if (dimensions > most) return fprintf(stderr, "%s: too many dimensions\n", arguments[1]), 1;
    write_texts();
    uform_matrix_t output = matrix(expected, texts_count, dimensions, UFORM_DTYPE_F32);
    SUCCEEDS(uform_embed_texts, model, NULL, texts, texts_count, NULL, &output, NULL);

#ifndef TEST_SHORT // what threads of the parent held is lost in its child, and memory checkers would say so
    forked_child();
#endif
    separate_executors();
    many_deferred_calls();
    limits_and_cancelling();
    freed_in_flight();
    executor_goes_first();
    log_changes_meanwhile();
    uform_model_free(model);
    return test_result("threads");
}
