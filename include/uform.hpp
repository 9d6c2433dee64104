// UForm for C++17: owners of handles over uform.h. Spans, results and matrices are in uform/values.hpp.
//
// Handles are move-only and free themselves. Every verb that can fail comes twice: `try_verb` returns a `result`, and
// `verb` returns the value itself and throws `uform::error`. Without exceptions only the first form is there.
// Structures, constants and rules are those of uform.h: options are its structures with the size set, and a verb may be
// called from the threads that the C function of the same name allows. Memory that runs out in this header's own
// vectors and strings ends as std::bad_alloc.

#ifndef UFORM_HPP
#define UFORM_HPP

#include "uform.h"
#include "uform/values.hpp"

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace uform {

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

namespace detail {

/// Texts as uform.h takes them: those that are such already, or views of others.
template <typename texts_type> auto raw_texts(texts_type const &texts) {
    if constexpr (std::is_convertible_v<texts_type const &, span<uform_text_t const>>) {
        return span<uform_text_t const>(texts);
    } else {
        std::vector<uform_text_t> raw;
        for (std::string_view each : texts)
            raw.push_back(text(each));
        return raw;
    }
}

} // namespace detail

/// Options of loading, all at their defaults, with the size set.
struct load_options : uform_load_options_t {
    load_options() noexcept : uform_load_options_t() { size = sizeof(uform_load_options_t); }
};

/// Options of packing, all at their defaults, with the size set.
struct pack_options : uform_pack_options_t {
    pack_options() noexcept : uform_pack_options_t() { size = sizeof(uform_pack_options_t); }
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

class receiver;

namespace detail {

/// What a deferred call reads, and the reports that it writes. Shared with the call, which goes on when its owner is
/// destroyed inside of it.
struct inputs {
    std::vector<std::string> texts;
    std::vector<uform_text_t> raw;
    std::vector<uform_report_t> reports;
};

/// With the output that it writes.
template <typename type> struct inputs_and_output : inputs {
    type output;
};

/// A call that ends later, whatever it gives. Ends early, and waits for that, when it is destroyed before it has ended;
/// inside its own progress callback it does not wait.
class submission {
  public:
    /// `UFORM_STATUS_PENDING`, or how the call ended.
    result<uform_status_t> try_poll() const { return given(uform_status_t(), uform_deferred_poll, get()); }
    /// Waits for the call to end, for so many seconds at most; negative means as long as it takes. Then its rows are
    /// there.
    result<void> try_wait(double seconds = -1) const { return checked(uform_deferred_wait, get(), seconds); }
    result<void> try_cancel() const { return checked(uform_deferred_cancel, get()); }
    /// Calls the function once with how the call ended, on the executor's thread, or at once if it has. Throwing from
    /// it ends the process.
    result<void> try_on_done(std::function<void(uform_status_t)> function) const {
        auto boxed = std::make_unique<std::function<void(uform_status_t)>>(std::move(function));
        auto done = checked(uform_deferred_on_done, get(), told, boxed.get());
        if (done) boxed.release();
        return done;
    }

    /// One report per row, or none if they were not asked for.
    span<uform_report_t const> reports() const noexcept { return {inputs_->reports.data(), inputs_->reports.size()}; }

#if UFORM_EXCEPTIONS
    uform_status_t poll() const { return try_poll().value(); }
    void cancel() const { try_cancel().value(); }
    void on_done(std::function<void(uform_status_t)> function) const { try_on_done(std::move(function)).value(); }
#endif

    /// The handle, still owned here.
    uform_deferred_t *get() const noexcept { return handle_.get(); }

  protected:
    explicit submission(std::shared_ptr<inputs> used) noexcept : inputs_(std::move(used)) {}

  private:
    friend class uform::receiver;
    /// Submits the call, and keeps what it uses until it has ended.
    result<void> submit(
        uform_model_t const *model, uform_executor_t *executor, std::vector<std::string> texts,
        uform_embed_options_t const &options, uform_matrix_t const &output, bool reports) {
        auto &used = *inputs_;
        used.texts = std::move(texts);
        used.raw.reserve(used.texts.size());
        for (auto const &each : used.texts)
            used.raw.push_back({each.data(), each.size()});
        if (reports) used.reports.resize(used.texts.size());
        uform_deferred_t *handle = nullptr;
        auto done = checked(
            uform_embed_texts_deferred, model, executor, used.raw.data(), used.raw.size(), &options, &output,
            reports ? used.reports.data() : nullptr, &handle);
        handle_.reset(handle);
        return done ? try_on_done([kept = inputs_](uform_status_t) {}) : done;
    }

    static void told(void *context, uform_status_t status, uform_error_t const *) noexcept {
        std::unique_ptr<std::function<void(uform_status_t)>> function(
            static_cast<std::function<void(uform_status_t)> *>(context));
        (*function)(status);
    }

    std::shared_ptr<inputs> inputs_;
    std::unique_ptr<uform_deferred_t, deleter<uform_deferred_free>> handle_;
};

} // namespace detail

/// An embedding call that ends later, with the texts that it reads and the rows that it writes.
template <typename type = matrix<float>> class deferred : public detail::submission {
  public:
    /// The rows; to be read when the call has ended well.
    type &rows() noexcept { return *output_; }

#if UFORM_EXCEPTIONS
    /// Waits for the call to end and hands the rows over, once.
    type wait() {
        if (!output_) fail({UFORM_STATUS_INVALID_ARGUMENT, "wait: the rows were handed over before"});
        try_wait().value();
        return std::move(*std::exchange(output_, nullptr));
    }
#endif

  private:
    friend class receiver;
    explicit deferred(std::shared_ptr<detail::inputs_and_output<type>> used) noexcept
        : submission(used), output_(&used->output) {}

    type *output_;
};

/// An embedding call that ends later, with the texts that it reads. It writes into memory of the caller, who keeps that
/// until the call has ended or this was destroyed, which is not to happen inside its own progress callback.
template <> class deferred<void> : public detail::submission {
#if UFORM_EXCEPTIONS
  public:
    /// Waits for the call to end. Then the rows are there.
    void wait() const { try_wait().value(); }
#endif

  private:
    friend class receiver;
    explicit deferred(std::shared_ptr<detail::inputs> used) noexcept : submission(std::move(used)) {}
};

/// A model on an executor: the verbs that compute. Must not outlive either.
class receiver {
  public:
    receiver(uform_model_t const *model, uform_executor_t *executor) noexcept : model_(model), executor_(executor) {}

    /// Embeds texts, which are anything that can be iterated and whose elements convert to std::string_view, or a span
    /// of texts as uform.h has them. The rows are of `element`: float, f16, bf16, std::int8_t, std::uint8_t or b1.
    template <typename element = float, typename texts_type = std::initializer_list<std::string_view>>
    result<matrix<element>> try_embed_texts(
        texts_type const &texts, embed_options const &options = {},
        std::vector<uform_report_t> *reports = nullptr) const {
        auto columns = width(options);
        if (!columns) return columns.cause();
        auto const raw = detail::raw_texts(texts);
        matrix<element> output(raw.size(), columns.value());
        if (reports) reports->assign(raw.size(), uform_report_t());
        auto done = embed(
            raw, options, output.raw(), reports ? span<uform_report_t>(*reports) : span<uform_report_t>());
        if (!done) return done.cause();
        return output;
    }

    /// Embeds texts into memory of the caller or of an arena, with one row per text and as many columns as the options
    /// keep dimensions: see `rows_over`, `matrix::raw` and `arena::try_allocate`. There are as many reports as texts,
    /// or none.
    template <typename texts_type = std::initializer_list<std::string_view>>
    result<void> try_embed_texts_into(
        texts_type const &texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        return embed(detail::raw_texts(texts), options, output, reports);
    }

    /// Submits `try_embed_texts`; the call owns texts and rows. With reports, a bad row fails by its report, not the
    /// call.
    template <typename element = float>
    result<deferred<matrix<element>>> try_embed_texts_deferred(
        std::vector<std::string> texts, embed_options const &options = {}, bool reports = false) const {
        auto columns = width(options);
        if (!columns) return columns.cause();
        auto used = std::make_shared<detail::inputs_and_output<matrix<element>>>();
        used->output = matrix<element>(texts.size(), columns.value());
        deferred<matrix<element>> call(used);
        auto done = call.submit(model_, executor_, std::move(texts), options, used->output.raw(), reports);
        if (!done) return done.cause();
        return call;
    }

    /// Submits `try_embed_texts_into`; the call owns the texts and, where they are wanted, the reports.
    result<deferred<void>> try_embed_texts_into_deferred(
        std::vector<std::string> texts, embed_options const &options, uform_matrix_t const &output,
        bool reports = false) const {
        deferred<void> call(std::make_shared<detail::inputs>());
        auto done = call.submit(model_, executor_, std::move(texts), options, output, reports);
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
    template <typename texts_type = std::initializer_list<std::string_view>>
    void embed_texts_into(
        texts_type const &texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        try_embed_texts_into(texts, options, output, reports).value();
    }
    template <typename element = float>
    deferred<matrix<element>> embed_texts_deferred(
        std::vector<std::string> texts, embed_options const &options = {}, bool reports = false) const {
        return try_embed_texts_deferred<element>(std::move(texts), options, reports).value();
    }
    deferred<void> embed_texts_into_deferred(
        std::vector<std::string> texts, embed_options const &options, uform_matrix_t const &output,
        bool reports = false) const {
        return try_embed_texts_into_deferred(std::move(texts), options, output, reports).value();
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

    result<void> embed(
        span<uform_text_t const> texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports) const {
        if (!reports.empty() && reports.size() != texts.size())
            return failure{
                UFORM_STATUS_INVALID_ARGUMENT,
                "reports: expected " + std::to_string(texts.size()) + ", found " + std::to_string(reports.size())};
        return detail::checked(
            uform_embed_texts, model_, executor_, texts.data(), texts.size(), &options, &output, reports.data());
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

    /// Writes a model as one file, which `load_ram` and `load_ram_from_bytes` load.
    static result<void> try_pack(
        std::string_view path, std::string_view destination, pack_options const &options = {}) {
        return detail::checked(
            uform_model_pack, path.data(), path.size(), destination.data(), destination.size(), &options);
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
    template <typename texts_type = std::initializer_list<std::string_view>>
    result<void> try_embed_texts_into(
        texts_type const &texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        return on({}).try_embed_texts_into(texts, options, output, reports);
    }

#if UFORM_EXCEPTIONS
    static model load_ram(std::string_view path, executor const &loader = {}, load_options const &options = {}) {
        return try_load_ram(path, loader, options).value();
    }
    static model load_ram_from_bytes(
        span<uform_file_t const> files, executor const &loader = {}, load_options const &options = {}) {
        return try_load_ram_from_bytes(files, loader, options).value();
    }
    static void pack(std::string_view path, std::string_view destination, pack_options const &options = {}) {
        try_pack(path, destination, options).value();
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
    template <typename texts_type = std::initializer_list<std::string_view>>
    void embed_texts_into(
        texts_type const &texts, embed_options const &options, uform_matrix_t const &output,
        span<uform_report_t> reports = {}) const {
        on({}).embed_texts_into(texts, options, output, reports);
    }
#endif

    /// The handle, still owned here.
    uform_model_t *get() const noexcept { return handle_.get(); }

  private:
    std::unique_ptr<uform_model_t, detail::deleter<uform_model_free>> handle_;
};

} // namespace uform

#endif // UFORM_HPP
