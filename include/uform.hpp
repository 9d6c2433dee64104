// UForm for C++17: owners of handles, spans and results over uform.h, in one header.
//
// Handles are move-only and free themselves. Every verb that can fail comes twice: `try_verb` returns a `result`, and
// `verb` returns the value itself and throws `uform::error`. Without exceptions only the first form is there.
// Structures, constants and rules are those of uform.h: options are its structures with the size set, and a verb may be
// called from the threads that the C function of the same name allows. Memory that runs out in this header's own
// vectors and strings ends as std::bad_alloc.

#ifndef UFORM_HPP
#define UFORM_HPP

#include "uform.h"

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions)
#include <stdexcept>
#define UFORM_EXCEPTIONS 1
#else
#define UFORM_EXCEPTIONS 0
#endif

namespace uform {

/// Consecutive elements that somebody else owns.
template <typename element> class span {
  public:
    constexpr span() noexcept = default;
    constexpr span(element *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t count> constexpr span(element (&array)[count]) noexcept : data_(array), size_(count) {}
    /// Anything with `data()` and `size()`, like a vector, an array or another span.
    template <
        typename container,
        typename = std::enable_if_t<std::is_convertible_v<decltype(std::declval<container &>().data()), element *>>>
    constexpr span(container &&values) noexcept : data_(values.data()), size_(values.size()) {}
    /// Values in braces. They live as long as the full expression, so this is for arguments.
    template <
        typename value = std::remove_const_t<element>,
        typename = std::enable_if_t<std::is_const_v<element> && sizeof(value)>>
    constexpr span(std::initializer_list<value> values) noexcept : size_(values.size()) {
        data_ = values.begin();
    }

    constexpr element *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr element *begin() const noexcept { return data_; }
    constexpr element *end() const noexcept { return data_ + size_; }
    constexpr element &operator[](std::size_t index) const noexcept { return data_[index]; }

  private:
    element *data_ = nullptr;
    std::size_t size_ = 0;
};

/// What went wrong: the status, and a sentence with the facts.
struct failure {
    uform_status_t status = UFORM_STATUS_OK;
    std::string message;
};

#if UFORM_EXCEPTIONS
/// A failure, thrown.
class error : public std::runtime_error {
  public:
    explicit error(failure const &cause) : std::runtime_error(cause.message), status_(cause.status) {}
    uform_status_t status() const noexcept { return status_; }

  private:
    uform_status_t status_;
};
#endif

[[noreturn]] inline void fail(failure const &cause) {
#if UFORM_EXCEPTIONS
    throw error(cause);
#else
    (void)cause;
    std::abort();
#endif
}

/// A value, or why there is none.
template <typename type> class [[nodiscard]] result {
  public:
    result(type value) : value_(std::move(value)) {}
    result(failure cause) : cause_(std::move(cause)) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    uform_status_t status() const noexcept { return cause_.status; }
    /// Only to be asked when there is no value.
    failure const &cause() const noexcept { return cause_; }

    /// The value. Where there is none, throws `uform::error`, or aborts when exceptions are off.
    type &value() & { return value_ ? *value_ : (fail(cause_), *value_); }
    type value() && { return std::move(value_ ? *value_ : (fail(cause_), *value_)); }

  private:
    std::optional<type> value_;
    failure cause_;
};

/// Success, or why there is none.
template <> class [[nodiscard]] result<void> {
  public:
    result() = default;
    result(failure cause) : cause_(std::move(cause)) {}

    explicit operator bool() const noexcept { return cause_.status == UFORM_STATUS_OK; }
    uform_status_t status() const noexcept { return cause_.status; }
    failure const &cause() const noexcept { return cause_; }
    void value() const {
        if (cause_.status != UFORM_STATUS_OK) fail(cause_);
    }

  private:
    failure cause_;
};

namespace detail {

/// Calls a function of uform.h, which takes a record for its error last.
template <typename function, typename... arguments> result<void> checked(function *verb, arguments... values) {
    uform_error_t record;
    uform_status_t const status = verb(values..., &record);
    if (status == UFORM_STATUS_OK) return {};
    return failure{status, std::string(record.message, record.message_length)};
}

/// Calls a function of uform.h that gives a value through the pointer before that.
template <typename type, typename function, typename... arguments>
result<type> given(type value, function *verb, arguments... values) {
    if (auto done = checked(verb, values..., &value); !done) return done.cause();
    return value;
}

/// An empty description with its size set.
template <typename type> type sized() noexcept {
    type description = {};
    description.size = sizeof description;
    return description;
}

/// Calls a function of uform.h that makes a handle.
template <typename noun, typename handle_type, typename function, typename... arguments>
result<noun> opened(function *verb, arguments... values) {
    handle_type *handle = nullptr;
    auto done = checked(verb, values..., &handle);
    noun owner(handle);
    if (!done) return done.cause();
    return owner;
}

template <auto free_function> struct deleter {
    template <typename handle> void operator()(handle *value) const noexcept { free_function(value); }
};

} // namespace detail

/// A borrowed text as uform.h takes it.
inline uform_text_t text(std::string_view value) noexcept { return {value.data(), value.size()}; }
/// A text of uform.h as a view; it lives as long as what it was borrowed from.
inline std::string_view view(uform_text_t const &value) noexcept { return {value.data, value.length}; }

/// Options of loading, all at their defaults, with the size set.
struct load_options : uform_load_options_t {
    load_options() noexcept : uform_load_options_t() { size = sizeof(uform_load_options_t); }
};

/// Options of embedding, all at their defaults, with the size set.
struct embed_options : uform_embed_options_t {
    embed_options() noexcept : uform_embed_options_t() { size = sizeof(uform_embed_options_t); }
};

/// The version of the library that is running, like "4.0.0".
inline std::string_view version() noexcept { return uform_version(); }
/// The names of the classes that the library has kernels for.
inline std::string_view capabilities_compiled() noexcept { return uform_capabilities_compiled(); }
/// The names of the classes that this machine offers to it.
inline std::string_view capabilities_available() noexcept { return uform_capabilities_available(); }
/// The name of a CPU class; empty for a number that is no class.
inline std::string_view name_of_cpu_class(uform_cpu_class_t number) noexcept {
    char const *name = uform_cpu_class_name(number);
    return name ? name : std::string_view();
}
/// The name of a GPU class; empty for a number that is no class.
inline std::string_view name_of_gpu_class(uform_gpu_class_t number) noexcept {
    char const *name = uform_gpu_class_name(number);
    return name ? name : std::string_view();
}
/// The CPU class that executors dispatch as unless one is pinned.
inline uform_cpu_class_t cpu_class_detected() noexcept { return uform_cpu_class_detected(); }

/// The CPU class of that name.
inline result<uform_cpu_class_t> try_cpu_class(std::string_view name) {
    return detail::given(uform_cpu_class_t(), uform_cpu_class_parse, name.data(), name.size());
}
/// The GPU class of that name.
inline result<uform_gpu_class_t> try_gpu_class(std::string_view name) {
    return detail::given(uform_gpu_class_t(), uform_gpu_class_parse, name.data(), name.size());
}
/// The GPUs that this process can drive.
inline result<std::vector<uform_gpu_device_t>> try_gpu_devices() {
    std::vector<uform_gpu_device_t> devices;
    for (std::size_t count = 0;;) {
        auto done =
            detail::checked(uform_gpu_devices, devices.data(), sizeof(uform_gpu_device_t), devices.size(), &count);
        if (!done) return done.cause();
        bool const fits = count <= devices.size();
        devices.resize(count);
        if (fits) return devices;
    }
}
/// Sends warnings to a function with a context, or nowhere when it is NULL.
inline result<void> try_log_callback(uform_log_callback_t callback, void *context = nullptr) {
    return detail::checked(uform_log_callback, callback, context);
}

/// What `executor::for_ram` takes; everything has a default.
struct for_ram_options {
    span<std::int32_t const> memory_domains = {};
    uform_cpu_class_t cpu_class = 0;
    std::size_t threads = 0;
    std::size_t deferred_limit = 0;
};

/// Host threads and scratch. One that was default-constructed is the null executor, which computes on the calling
/// thread.
class executor {
  public:
    executor() noexcept = default;
    /// Owns the handle from now on.
    explicit executor(uform_executor_t *handle) noexcept : handle_(handle) {}

    static result<executor> try_for_ram(for_ram_options const &options = {}) {
        return detail::opened<executor, uform_executor_t>(
            uform_executor_for_ram, options.memory_domains.data(), options.memory_domains.size(), options.cpu_class,
            options.threads, options.deferred_limit);
    }
    /// Answers `UFORM_STATUS_UNSUPPORTED` in this version.
    static result<executor> try_on_pool(void *pool, for_ram_options const &options = {}) {
        return detail::opened<executor, uform_executor_t>(
            uform_executor_on_pool, options.memory_domains.data(), options.memory_domains.size(), options.cpu_class,
            pool, options.deferred_limit);
    }
    /// Answers `UFORM_STATUS_UNSUPPORTED` in this version.
    static result<executor> try_for_vram(
        span<std::int32_t const> devices, uform_gpu_class_t gpu_class = 0, for_ram_options const &host = {},
        span<void *const> streams = {}, std::size_t scratch_limit = 0) {
        return detail::opened<executor, uform_executor_t>(
            uform_executor_for_vram, devices.data(), devices.size(), gpu_class, host.memory_domains.data(),
            host.memory_domains.size(), host.cpu_class, streams.data(), streams.size(), scratch_limit,
            host.deferred_limit);
    }

    result<void> try_drain(uform_mood_t mood = UFORM_MOOD_PARKED) {
        return detail::checked(uform_executor_drain, get(), mood);
    }
    result<uform_executor_description_t> try_describe() const {
        return detail::given(detail::sized<uform_executor_description_t>(), uform_executor_describe, get());
    }
    result<void> try_trim() { return detail::checked(uform_executor_trim, get()); }

#if UFORM_EXCEPTIONS
    static executor for_ram(for_ram_options const &options = {}) { return try_for_ram(options).value(); }
    void drain(uform_mood_t mood = UFORM_MOOD_PARKED) { try_drain(mood).value(); }
    uform_executor_description_t describe() const { return try_describe().value(); }
    void trim() { try_trim().value(); }
#endif

    /// The handle, still owned here; NULL is the null executor.
    uform_executor_t *get() const noexcept { return handle_.get(); }

  private:
    std::unique_ptr<uform_executor_t, detail::deleter<uform_executor_free>> handle_;
};

/// The header's number for the type of an element; f16, bf16 and b1 have none in C++17, see `embed_texts_into`.
template <typename element> constexpr uform_dtype_t dtype_of() noexcept {
    static_assert(
        std::is_same_v<element, float> || std::is_same_v<element, std::int8_t> || std::is_same_v<element, std::uint8_t>,
        "expected float, std::int8_t or std::uint8_t");
    return std::is_same_v<element, float> ? UFORM_DTYPE_F32
                                          : (std::is_same_v<element, std::int8_t> ? UFORM_DTYPE_I8 : UFORM_DTYPE_U8);
}

/// Rows of vectors, one after the other without gaps.
template <typename element = float> class matrix {
  public:
    matrix() = default;
    matrix(std::size_t rows, std::size_t columns) : values_(rows * columns), rows_(rows), columns_(columns) {}
    matrix(matrix const &) = default;
    matrix(matrix &&other) noexcept : matrix() { *this = std::move(other); }
    matrix &operator=(matrix const &) = default;
    /// Leaves the other without rows.
    matrix &operator=(matrix &&other) noexcept {
        values_ = std::exchange(other.values_, {});
        rows_ = std::exchange(other.rows_, 0), columns_ = std::exchange(other.columns_, 0);
        return *this;
    }

    std::size_t rows() const noexcept { return rows_; }
    std::size_t columns() const noexcept { return columns_; }
    element *data() noexcept { return values_.data(); }
    element const *data() const noexcept { return values_.data(); }
    span<element> row(std::size_t index) noexcept { return {values_.data() + index * columns_, columns_}; }
    span<element const> row(std::size_t index) const noexcept { return {values_.data() + index * columns_, columns_}; }
    /// As uform.h takes it.
    uform_matrix_t raw() noexcept {
        return {values_.data(), rows_, columns_, columns_ * sizeof(element), dtype_of<element>(), 0};
    }

  private:
    std::vector<element> values_;
    std::size_t rows_ = 0, columns_ = 0;
};

/// Output memory placed where an executor computes. A matrix of it lives until the next reset or the arena's end.
class arena {
  public:
    /// Owns the handle from now on.
    explicit arena(uform_arena_t *handle) noexcept : handle_(handle) {}

    static result<arena> try_new_in(executor const &where) {
        return detail::opened<arena, uform_arena_t>(uform_arena_new_in, where.get());
    }
    result<uform_matrix_t> try_allocate(std::size_t rows, std::size_t columns, uform_dtype_t dtype = UFORM_DTYPE_F32) {
        return detail::given(uform_matrix_t(), uform_arena_allocate, get(), rows, columns, dtype);
    }
    result<void> try_copy_to_host(uform_matrix_t const &from, uform_matrix_t const &to) const {
        return detail::checked(uform_arena_copy_to_host, get(), &from, &to);
    }
    result<void> try_reset() { return detail::checked(uform_arena_reset, get()); }
    result<uform_arena_description_t> try_describe() const {
        return detail::given(detail::sized<uform_arena_description_t>(), uform_arena_describe, get());
    }

#if UFORM_EXCEPTIONS
    static arena new_in(executor const &where) { return try_new_in(where).value(); }
    uform_matrix_t allocate(std::size_t rows, std::size_t columns, uform_dtype_t dtype = UFORM_DTYPE_F32) {
        return try_allocate(rows, columns, dtype).value();
    }
    void copy_to_host(uform_matrix_t const &from, uform_matrix_t const &to) const {
        try_copy_to_host(from, to).value();
    }
    void reset() { try_reset().value(); }
    uform_arena_description_t describe() const { return try_describe().value(); }
#endif

    /// The handle, still owned here.
    uform_arena_t *get() const noexcept { return handle_.get(); }

  private:
    std::unique_ptr<uform_arena_t, detail::deleter<uform_arena_free>> handle_;
};

/// An embedding call that ends later, with the texts that it reads and the rows that it writes. Ends early, and waits
/// for that, when it is destroyed before it has ended; inside its own progress callback it does not wait.
class deferred {
  public:
    /// `UFORM_STATUS_PENDING`, or how the call ended.
    result<uform_status_t> try_poll() const { return detail::given(uform_status_t(), uform_deferred_poll, get()); }
    /// Waits for the call to end, for so many seconds at most; negative means as long as it takes. Then its rows are
    /// there.
    result<void> try_wait(double seconds = -1) const { return detail::checked(uform_deferred_wait, get(), seconds); }
    result<void> try_cancel() const { return detail::checked(uform_deferred_cancel, get()); }
    /// Calls the function once with how the call ended, on the executor's thread, or at once if it has. Throwing from
    /// it ends the process.
    result<void> try_on_done(std::function<void(uform_status_t)> function) const {
        auto boxed = std::make_unique<std::function<void(uform_status_t)>>(std::move(function));
        auto done = detail::checked(uform_deferred_on_done, get(), told, boxed.get());
        if (done) boxed.release();
        return done;
    }

    /// The rows; to be read when the call has ended well.
    matrix<float> &rows() noexcept { return work_->output; }
    /// One report per row, or none if they were not asked for.
    span<uform_report_t const> reports() const noexcept { return {work_->reports.data(), work_->reports.size()}; }

#if UFORM_EXCEPTIONS
    uform_status_t poll() const { return try_poll().value(); }
    /// Waits for the call to end and hands the rows over, once.
    matrix<float> wait() {
        if (!work_ || work_->taken) fail({UFORM_STATUS_INVALID_ARGUMENT, "wait: the rows were handed over before"});
        try_wait().value();
        work_->taken = true;
        return std::move(work_->output);
    }
    void cancel() const { try_cancel().value(); }
    void on_done(std::function<void(uform_status_t)> function) const { try_on_done(std::move(function)).value(); }
#endif

    /// The handle, still owned here.
    uform_deferred_t *get() const noexcept { return handle_.get(); }

  private:
    friend class receiver;
    struct work {
        std::vector<std::string> texts;
        std::vector<uform_text_t> raw;
        matrix<float> output;
        std::vector<uform_report_t> reports;
        bool taken = false;
    };

    deferred() noexcept = default;
    static void told(void *context, uform_status_t status, uform_error_t const *) noexcept {
        std::unique_ptr<std::function<void(uform_status_t)>> function(
            static_cast<std::function<void(uform_status_t)> *>(context));
        (*function)(status);
    }

    std::shared_ptr<work> work_; // shared with the call, which goes on when this is destroyed inside of it
    std::unique_ptr<uform_deferred_t, detail::deleter<uform_deferred_free>> handle_;
};

/// A model on an executor: the verbs that compute. Must not outlive either.
class receiver {
  public:
    receiver(uform_model_t const *model, uform_executor_t *executor) noexcept : model_(model), executor_(executor) {}

    /// Embeds texts, which are anything that can be iterated and whose elements convert to std::string_view.
    template <typename element = float, typename texts_type = std::initializer_list<std::string_view>>
    result<matrix<element>> try_embed_texts(
        texts_type const &texts, embed_options const &options = {},
        std::vector<uform_report_t> *reports = nullptr) const {
        auto columns = width(options);
        if (!columns) return columns.cause();
        std::vector<uform_text_t> raw;
        for (std::string_view each : texts)
            raw.push_back(text(each));
        matrix<element> output(raw.size(), columns.value());
        if (reports) reports->assign(raw.size(), uform_report_t());
        auto done = try_embed_texts_into(
            raw, options, output.raw(), reports ? span<uform_report_t>(*reports) : span<uform_report_t>());
        if (!done) return done.cause();
        return output;
    }

    /// Embeds texts into memory of the caller or of an arena. There are as many reports as texts, or none.
    result<void> try_embed_texts_into(
        span<uform_text_t const> texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        if (!reports.empty() && reports.size() != texts.size())
            return failure{
                UFORM_STATUS_INVALID_ARGUMENT,
                "reports: expected " + std::to_string(texts.size()) + ", found " + std::to_string(reports.size())};
        return detail::checked(
            uform_embed_texts, model_, executor_, texts.data(), texts.size(), &options, &output, reports.data());
    }

    /// Submits the call, which owns its texts. With reports, a bad row fails by its report, not the call.
    result<deferred> try_embed_texts_deferred(
        std::vector<std::string> texts, embed_options const &options = {}, bool reports = false) const {
        auto columns = width(options);
        if (!columns) return columns.cause();
        deferred call;
        call.work_ = std::make_shared<deferred::work>();
        auto &work = *call.work_;
        work.texts = std::move(texts);
        for (auto const &each : work.texts)
            work.raw.push_back(text(each));
        work.output = matrix<float>(work.raw.size(), columns.value());
        if (reports) work.reports.resize(work.raw.size());
        uform_matrix_t const output = work.output.raw();
        uform_deferred_t *handle = nullptr;
        auto done = detail::checked(
            uform_embed_texts_deferred, model_, executor_, work.raw.data(), work.raw.size(), &options, &output,
            reports ? work.reports.data() : nullptr, &handle);
        call.handle_.reset(handle);
        if (done) done = call.try_on_done([kept = call.work_](uform_status_t) {});
        if (!done) return done.cause();
        return call;
    }

#if UFORM_EXCEPTIONS
    template <typename element = float, typename texts_type = std::initializer_list<std::string_view>>
    matrix<element> embed_texts(
        texts_type const &texts, embed_options const &options = {},
        std::vector<uform_report_t> *reports = nullptr) const {
        return try_embed_texts<element>(texts, options, reports).value();
    }
    void embed_texts_into(
        span<uform_text_t const> texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        try_embed_texts_into(texts, options, output, reports).value();
    }
    deferred embed_texts_deferred(
        std::vector<std::string> texts, embed_options const &options = {}, bool reports = false) const {
        return try_embed_texts_deferred(std::move(texts), options, reports).value();
    }
#endif

  private:
    /// Columns of an output. More dimensions than the model has are for the library to refuse.
    result<std::size_t> width(embed_options const &options) const {
        auto described = detail::given(detail::sized<uform_model_description_t>(), uform_model_describe, model_);
        if (!described) return described.cause();
        if (options.dimensions == 0) return described.value().default_dimensions;
        return options.dimensions > described.value().dimensions ? described.value().dimensions : options.dimensions;
    }

    uform_model_t const *model_;
    uform_executor_t *executor_;
};

/// A loaded model. `on(executor)` computes on that executor, the model itself on the calling thread.
class model {
  public:
    /// Owns the handle from now on.
    explicit model(uform_model_t *handle) noexcept : handle_(handle) {}

    static result<model> try_load_ram(
        std::string_view path, executor const &loader = {}, load_options const &options = {}) {
        return detail::opened<model, uform_model_t>(
            uform_model_load_ram, path.data(), path.size(), loader.get(), &options);
    }
    static result<model> try_load_ram_from_bytes(
        span<uform_file_t const> files, executor const &loader = {}, load_options const &options = {}) {
        return detail::opened<model, uform_model_t>(
            uform_model_load_ram_from_bytes, files.data(), files.size(), loader.get(), &options);
    }
    /// Answers `UFORM_STATUS_UNSUPPORTED` in this version.
    static result<model> try_load_vram(
        std::string_view path, span<std::int32_t const> devices, executor const &loader = {},
        load_options const &options = {}) {
        return detail::opened<model, uform_model_t>(
            uform_model_load_vram, path.data(), path.size(), loader.get(), devices.data(), devices.size(), &options);
    }

    result<model> try_clone() const { return detail::opened<model, uform_model_t>(uform_model_clone, get()); }
    /// The texts in it live as long as the model or a clone of it.
    result<uform_model_description_t> try_describe() const {
        return detail::given(detail::sized<uform_model_description_t>(), uform_model_describe, get());
    }
    result<std::uint64_t> try_plan(
        executor const &where, std::size_t rows, std::size_t tokens = 0, embed_options const &options = {}) const {
        return detail::given(std::uint64_t(), uform_model_plan, get(), where.get(), rows, tokens, &options);
    }
    result<std::vector<uform_token_t>> try_tokenize(std::string_view value, embed_options const &options = {}) const {
        std::vector<uform_token_t> tokens(value.size() / 4 + 8);
        for (;;) {
            std::size_t count = 0;
            auto done = detail::checked(
                uform_model_tokenize, get(), value.data(), value.size(), &options, tokens.data(), tokens.size(),
                &count);
            if (!done && done.status() != UFORM_STATUS_BUFFER_TOO_SMALL) return done.cause();
            tokens.resize(count);
            if (done) return tokens;
        }
    }
    receiver on(executor const &where) const noexcept { return {get(), where.get()}; }
    template <typename element = float, typename texts_type = std::initializer_list<std::string_view>>
    result<matrix<element>> try_embed_texts(texts_type const &texts, embed_options const &options = {}) const {
        return on({}).try_embed_texts<element>(texts, options);
    }

#if UFORM_EXCEPTIONS
    static model load_ram(std::string_view path, executor const &loader = {}, load_options const &options = {}) {
        return try_load_ram(path, loader, options).value();
    }
    static model load_ram_from_bytes(
        span<uform_file_t const> files, executor const &loader = {}, load_options const &options = {}) {
        return try_load_ram_from_bytes(files, loader, options).value();
    }
    model clone() const { return try_clone().value(); }
    uform_model_description_t describe() const { return try_describe().value(); }
    std::uint64_t plan(
        executor const &where, std::size_t rows, std::size_t tokens = 0, embed_options const &options = {}) const {
        return try_plan(where, rows, tokens, options).value();
    }
    std::vector<uform_token_t> tokenize(std::string_view value, embed_options const &options = {}) const {
        return try_tokenize(value, options).value();
    }
    template <typename element = float, typename texts_type = std::initializer_list<std::string_view>>
    matrix<element> embed_texts(texts_type const &texts, embed_options const &options = {}) const {
        return on({}).embed_texts<element>(texts, options);
    }
#endif

    /// The handle, still owned here.
    uform_model_t *get() const noexcept { return handle_.get(); }

  private:
    std::unique_ptr<uform_model_t, detail::deleter<uform_model_free>> handle_;
};

} // namespace uform

#endif // UFORM_HPP
