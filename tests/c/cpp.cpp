// The C++ layer, with exceptions and without: owners that move, results and errors, spans, and the same bits as the C
// functions give. Usage: cpp MODEL

#include <uform.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

static int failures = 0;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) ++failures, std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);   \
    } while (0)

template <typename type> static bool same(type const &left, type const &right) {
    return left.rows() == right.rows() && left.columns() == right.columns() &&
           std::memcmp(left.data(), right.data(), left.rows() * left.columns() * sizeof *left.data()) == 0;
}

static_assert(!std::is_copy_constructible_v<uform::executor> && std::is_nothrow_move_constructible_v<uform::executor>);
static_assert(!std::is_copy_constructible_v<uform::model> && std::is_nothrow_move_assignable_v<uform::model>);
static_assert(!std::is_copy_constructible_v<uform::arena> && std::is_nothrow_move_constructible_v<uform::arena>);
static_assert(!std::is_copy_constructible_v<uform::deferred<>> && std::is_nothrow_move_assignable_v<uform::deferred<>>);
static_assert(
    !std::is_copy_constructible_v<uform::deferred<void>> && std::is_nothrow_move_assignable_v<uform::deferred<void>>);

static void spans() {
    int raw[] = {1, 2, 3};
    std::vector<int> values = {4, 5};
    uform::span<int> from_array = raw, from_vector = values;
    uform::span<int const> constant = values, again = from_array;
    auto sum = [](uform::span<int const> span) {
        int total = 0;
        for (int each : span)
            total += each;
        return total;
    };
    from_vector[1] = 7;
    CHECK(from_array.size() == 3 && values[1] == 7 && constant[1] == 7 && again.data() == raw);
    CHECK(sum({1, 2, 3}) == 6 && sum({}) == 0 && sum(std::array<int, 2>{5, 6}) == 11);
    CHECK(uform::span<int>().empty());
}

static void matrices() {
    uform::matrix<float> full(2, 3), moved = std::move(full);
    CHECK(moved.rows() == 2 && moved.columns() == 3 && full.rows() == 0 && full.columns() == 0);
    full = std::move(moved);
    CHECK(full.rows() == 2 && full.row(1).size() == 3 && moved.rows() == 0 && moved.raw().columns == 0);
    uform::matrix<float> copy = full;
    CHECK(copy.rows() == 2 && same(copy, full));
}

static void names() {
    CHECK(uform::version() == uform_version() && uform::version().size() >= 5);
    CHECK(!uform::capabilities_compiled().empty() && !uform::capabilities_available().empty());
    CHECK(uform::name_of_cpu_class(uform::cpu_class_detected()).size() > 3);
    CHECK(uform::name_of_cpu_class(99).empty() && uform::name_of_gpu_class(0).empty());
    CHECK(uform::try_cpu_class("intel-haswell").value() == UFORM_CPU_CLASS_INTEL_HASWELL);
    CHECK(uform::try_gpu_class("nvidia-hopper").value() == UFORM_GPU_CLASS_NVIDIA_HOPPER);
    auto wrong = uform::try_cpu_class("haswell");
    CHECK(!wrong && wrong.status() == UFORM_STATUS_INVALID_ARGUMENT);
    CHECK(wrong.cause().message.find("intel-haswell") != std::string::npos);
    CHECK(bool(uform::try_gpu_devices()));
    CHECK(bool(uform::try_log_callback(nullptr)));
}

static void executors() {
    uform::executor none;
    CHECK(none.get() == nullptr && none.try_describe().value().threads == 1);
    CHECK(bool(none.try_drain()) && bool(none.try_trim()));
    auto made = uform::executor::try_for_ram({{}, UFORM_CPU_CLASS_SERIAL, 2, 5});
    CHECK(bool(made));
    uform::executor threads = std::move(made).value();
    auto described = threads.try_describe().value();
    CHECK(described.threads == 2 && described.deferred_limit == 5 && described.cpu_class == UFORM_CPU_CLASS_SERIAL);
    CHECK(bool(threads.try_drain(UFORM_MOOD_SPINNING)));
    CHECK(threads.try_describe().value().mood == UFORM_MOOD_SPINNING);
    CHECK(threads.try_drain(9).status() == UFORM_STATUS_INVALID_ARGUMENT);
    uform::executor moved = std::move(threads);
    CHECK(threads.get() == nullptr && moved.get() != nullptr);
    CHECK(uform::executor::try_on_pool(nullptr).status() == UFORM_STATUS_UNSUPPORTED);
    CHECK(uform::executor::try_for_vram({0, 1}).status() == UFORM_STATUS_UNSUPPORTED);
    CHECK(uform::executor::try_for_ram({{12345}}).status() == UFORM_STATUS_INVALID_ARGUMENT);
}

/// Every way to embed gives the same rows.
static void embedding(std::string const &path) {
    auto threads = uform::executor::try_for_ram({{}, 0, 2, 0}).value();
    auto model = uform::model::try_load_ram(path, threads).value();
    auto described = model.try_describe().value();
    CHECK(uform::view(described.architecture).size() > 2);
    auto on = model.on(threads);

    auto expected = on.try_embed_texts({"a cat", "a dog"}).value();
    CHECK(expected.rows() == 2 && expected.columns() == described.default_dimensions);
    std::vector<std::string> strings = {"a cat", "a dog"};
    std::array<char const *, 2> pointers = {"a cat", "a dog"};
    CHECK(same(on.try_embed_texts(strings).value(), expected));
    CHECK(same(on.try_embed_texts(pointers).value(), expected));
    CHECK(same(model.try_embed_texts(strings).value(), expected));
    auto clone = model.try_clone().value();
    model = std::move(clone);
    CHECK(same(model.try_embed_texts(strings).value(), expected));
    CHECK(std::memcmp(expected.row(1).data(), model.try_embed_texts({"a dog"}).value().data(), sizeof(float)) == 0);
    CHECK(model.try_embed_texts(std::vector<std::string>()).value().rows() == 0);

    uform::embed_options options;
    options.dimensions = 4;
    options.normalize = UFORM_NORMALIZE_YES;
    auto narrow = model.on(threads).try_embed_texts(strings, options).value();
    float norm = 0;
    for (float each : narrow.row(0))
        norm += each * each;
    CHECK(narrow.columns() == 4 && std::fabs(norm - 1) < 1e-5f);
    auto bytes = model.try_embed_texts<std::int8_t>(strings, options).value();
    CHECK(bytes.columns() == 4 && std::fabs(bytes.row(0)[0] - narrow.row(0)[0] * 127) <= 0.51f);
    options.dimensions = std::size_t(-1);
    CHECK(model.try_embed_texts(strings, options).status() == UFORM_STATUS_INVALID_ARGUMENT);

    std::vector<uform_report_t> reports;
    std::vector<std::string_view> bad = {"fine", "\xff\xfe"};
    auto rows = model.on(threads).try_embed_texts(bad, {}, &reports).value();
    CHECK(reports.size() == 2 && reports[0].status == UFORM_STATUS_OK && reports[1].status != UFORM_STATUS_OK);
    CHECK(std::isnan(rows.row(1)[0]));
    CHECK(model.try_embed_texts(bad).status() == UFORM_STATUS_ROW_FAILED);

    auto tokens = model.try_tokenize("a cat").value();
    CHECK(tokens.size() >= 3 && tokens.front().special == 1);
    CHECK(model.try_tokenize(std::string(4000, 'a') + " b c d e f g").value().size() >= 6);
    CHECK(model.try_plan(threads, 10).value() > 0);
    CHECK(uform::model::try_load_ram("no/such/model").status() == UFORM_STATUS_NOT_FOUND);
    CHECK(uform::model::try_load_vram(path, {0}).status() == UFORM_STATUS_UNSUPPORTED);
}

static void bytes(std::string const &path) {
    std::vector<std::string> names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    std::vector<std::string> contents;
    std::vector<uform_file_t> files;
    for (auto const &name : names) {
        std::ifstream stream(path + "/" + name, std::ios::binary);
        contents.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
    for (std::size_t i = 0; i < names.size(); ++i)
        files.push_back(
            {uform::text(names[i]), reinterpret_cast<std::uint8_t const *>(contents[i].data()), contents[i].size()});
    auto model = uform::model::try_load_ram_from_bytes(files);
    CHECK(bool(model));
    CHECK(model.value().try_embed_texts({"a"}).value().rows() == 1);
}

/// A packed model is the same one; `to` is where it goes.
static void packing(std::string const &path, std::string const &to) {
    uform::load_options load;
    uform::pack_options options;
    load.precision = options.precision = UFORM_PRECISION_BF16;
    options.layout = UFORM_LAYOUT_X86;
    CHECK(bool(uform::model::try_pack(path, to, options)));
    auto expected = uform::model::try_load_ram(path, {}, load).value().try_embed_texts({"a cat", "a dog"}).value();
    auto packed = uform::model::try_load_ram(to).value();
    CHECK(packed.try_describe().value().precision == UFORM_PRECISION_BF16);
    CHECK(same(packed.try_embed_texts({"a cat", "a dog"}).value(), expected));
    CHECK(uform::model::try_pack(path, "packed.bin").status() == UFORM_STATUS_INVALID_ARGUMENT);
#if UFORM_EXCEPTIONS
    uform::model::pack(path, to);
    CHECK(uform::model::load_ram(to).describe().precision == UFORM_PRECISION_F32);
#endif
    std::remove(to.c_str());
}

static void deferred_calls(std::string const &path) {
    auto threads = uform::executor::try_for_ram({{}, 0, 2, 4}).value();
    auto model = uform::model::try_load_ram(path).value();
    auto expected = model.try_embed_texts({"a cat", "a dog"}).value();
    std::atomic<int> told{-1};
    auto call = model.on(threads).try_embed_texts_deferred({"a cat", "a dog"}).value();
    CHECK(bool(call.try_on_done([&](uform_status_t status) { told = status; })));
    CHECK(bool(call.try_wait()));
    CHECK(call.try_poll().value() == UFORM_STATUS_OK && same(call.rows(), expected));
    CHECK(call.reports().empty());
    // With reports bad rows do not fail the call, without them they do, as in the verb that computes at once.
    std::vector<std::string> const bad = {"a cat", "\xff\xfe"};
    CHECK(model.on(threads).try_embed_texts_deferred(bad).value().try_wait().status() == UFORM_STATUS_ROW_FAILED);
    call = model.on(threads).try_embed_texts_deferred(bad, {}, true).value();
    CHECK(bool(call.try_wait()) && call.reports().size() == 2 && call.reports()[0].tokens_kept >= 3);
    CHECK(call.reports()[1].status != UFORM_STATUS_OK && std::isnan(call.rows().row(1)[0]));

    // Assigning over a call that may still run frees it before the memory that it writes to.
    for (int i = 0; i < 8; ++i)
        call = model.on(threads).try_embed_texts_deferred({"another", "one"}).value();
    auto cancelled = model.on(threads).try_embed_texts_deferred({"a"}).value();
    CHECK(bool(cancelled.try_cancel()));
    auto status = cancelled.try_wait(60).status();
    CHECK(status == UFORM_STATUS_CANCELLED || status == UFORM_STATUS_OK);
    threads = uform::executor(); // joins, so that callbacks are told
    CHECK(told == UFORM_STATUS_OK);
}

/// Rows of one type are the same bits by every road: owned or in memory of the caller, at once or deferred.
template <typename element>
static void roads(uform::model const &model, uform::executor &threads, uform::arena &arena, std::size_t row_bytes) {
    std::vector<std::string> const texts = {"a cat", "a dog", "the quick brown fox"};
    auto on = model.on(threads);
    uform::embed_options options;
    options.dimensions = 12;
    auto expected = on.try_embed_texts<element>(texts, options).value();
    std::size_t const width = expected.row(0).size();
    CHECK(expected.rows() == 3 && expected.columns() == 12 && width * sizeof(element) == row_bytes);
    auto is_expected = [&](void const *data, std::size_t row_stride) {
        for (std::size_t row = 0; row < 3; ++row) {
            auto const *bytes = static_cast<char const *>(data) + row * row_stride;
            if (std::memcmp(bytes, expected.row(row).data(), row_bytes)) return false;
        }
        return true;
    };
    auto deferred = on.try_embed_texts_deferred<element>(texts, options).value();
    CHECK(bool(deferred.try_wait()) && is_expected(deferred.rows().data(), row_bytes));

    // Spans of the caller, with one element more, which stays as it is.
    std::vector<element> memory(3 * width + 1, element{7});
    auto into = [&] { return uform::rows_over(uform::span<element>(memory), 12); };
    CHECK(into().rows == 3 && into().columns == 12 && into().row_stride == row_bytes);
    element const untouched = {7};
    auto check_memory = [&] {
        CHECK(is_expected(memory.data(), row_bytes) && !std::memcmp(&memory.back(), &untouched, sizeof untouched));
        memory.assign(memory.size(), untouched);
    };
    CHECK(bool(on.try_embed_texts_into(texts, options, into())));
    check_memory();
    CHECK(bool(model.try_embed_texts_into({"a cat", "a dog", "the quick brown fox"}, options, into())));
    check_memory();
    std::vector<uform_text_t> borrowed;
    for (auto const &each : texts)
        borrowed.push_back(uform::text(each));
    std::vector<uform_report_t> reports(3);
    CHECK(bool(on.try_embed_texts_into(borrowed, options, into(), reports)) && reports[2].tokens_kept >= 6);
    check_memory();
    auto later = on.try_embed_texts_into_deferred(texts, options, into(), true).value();
    CHECK(bool(later.try_wait()) && later.reports().size() == 3 && later.reports()[2].tokens_kept >= 6);
    check_memory();

    // A matrix of an arena, whose rows lie apart, and a matrix of our own.
    auto placed = arena.try_allocate(3, 12, uform::dtype_of<element>()).value();
    CHECK(bool(on.try_embed_texts_into_deferred(texts, options, placed).value().try_wait()));
    CHECK(is_expected(placed.data, placed.row_stride));
    uform::matrix<element> own(3, 12);
    CHECK(bool(on.try_embed_texts_into(texts, options, own.raw())) && is_expected(own.data(), row_bytes));
}

static void every_road(std::string const &path) {
    auto threads = uform::executor::try_for_ram({{}, 0, 2, 0}).value();
    auto model = uform::model::try_load_ram(path).value();
    auto arena = uform::arena::try_new_in(threads).value();
    roads<float>(model, threads, arena, 48);
    roads<uform::f16>(model, threads, arena, 24);
    roads<uform::bf16>(model, threads, arena, 24);
    roads<std::int8_t>(model, threads, arena, 12);
    roads<std::uint8_t>(model, threads, arena, 12);
    roads<uform::b1>(model, threads, arena, 2);

    auto exact = model.try_embed_texts({"a cat"}).value();
    auto upper = model.try_embed_texts<uform::bf16>({"a cat"}).value();
    auto bits = model.try_embed_texts<uform::b1>({"a cat"}).value();
    for (std::size_t i = 0; i < exact.columns(); ++i) {
        std::uint32_t const wide = std::uint32_t(upper.row(0)[i].bits) << 16;
        float rounded;
        std::memcpy(&rounded, &wide, sizeof rounded);
        CHECK(std::fabs(rounded - exact.row(0)[i]) <= std::fabs(exact.row(0)[i]) / 256);
        CHECK((bits.row(0)[i / 8].bits >> (7 - i % 8) & 1) == (exact.row(0)[i] > 0));
    }

    // Memory that is too small, and calls whose memory the caller takes back by destroying them.
    std::vector<float> memory(exact.columns());
    auto into = uform::rows_over(uform::span<float>(memory), exact.columns());
    std::vector<std::string> const two = {"a", "b"};
    CHECK(into.rows == 1 && uform::rows_over(uform::span<float>(memory), 0).rows == 0);
    CHECK(model.try_embed_texts_into(two, {}, into).status() == UFORM_STATUS_BUFFER_TOO_SMALL);
    auto small = model.on(threads).try_embed_texts_into_deferred(two, {}, into).value();
    CHECK(small.try_wait().status() == UFORM_STATUS_BUFFER_TOO_SMALL);
    auto refused = model.on(threads).try_embed_texts_into_deferred({"\xff"}, {}, into).value();
    CHECK(refused.try_wait().status() == UFORM_STATUS_ROW_FAILED);
    for (int i = 0; i < 8; ++i)
        refused = model.on(threads).try_embed_texts_into_deferred({"a cat"}, {}, into).value();
    refused = model.on(threads).try_embed_texts_into_deferred({"a cat"}, {}, into).value();
    CHECK(bool(refused.try_wait()) && !std::memcmp(memory.data(), exact.data(), memory.size() * sizeof(float)));
}

/// A call whose owner goes from inside its own progress callback keeps what it writes to until it has ended.
static void dropped_inside(std::string const &path) {
    struct owner_type {
        std::optional<uform::deferred<>> call;
        std::atomic<bool> ready{false}, dropped{false};
    } owner;
    auto model = uform::model::try_load_ram(path).value();
    auto threads = uform::executor::try_for_ram({{}, 0, 1, 0}).value();
    uform::embed_options options;
    options.token_budget = 8;
    options.progress_context = &owner;
    options.progress = [](void *context, std::uint64_t, std::uint64_t) -> std::int32_t {
        auto &owner = *static_cast<owner_type *>(context);
        while (!owner.ready)
            std::this_thread::yield();
        owner.call.reset();
        owner.dropped = true;
        return 0;
    };
    owner.call = model.on(threads).try_embed_texts_deferred(std::vector<std::string>(50, "a cat"), options).value();
    owner.ready = true;
    CHECK(bool(threads.try_drain()));
    CHECK(owner.dropped && !owner.call);
}

static void arenas(std::string const &path) {
    auto model = uform::model::try_load_ram(path).value();
    auto expected = model.try_embed_texts({"a cat", "a dog"}).value();
    auto arena = uform::arena::try_new_in(uform::executor()).value();
    auto placed = arena.try_allocate(2, expected.columns()).value();
    uform_text_t texts[] = {uform::text("a cat"), uform::text("a dog")};
    std::vector<uform_report_t> reports(2);
    CHECK(bool(model.on({}).try_embed_texts_into(texts, {}, placed, reports)));
    CHECK(!model.on({}).try_embed_texts_into(texts, {}, placed, {reports.data(), 1}));
    uform::matrix<float> host(2, expected.columns());
    CHECK(bool(arena.try_copy_to_host(placed, host.raw())) && same(host, expected));
    CHECK(arena.try_describe().value().used_bytes > 0);
    CHECK(bool(arena.try_reset()) && arena.try_describe().value().used_bytes == 0);
    CHECK(arena.try_allocate(1, 1, 77).status() == UFORM_STATUS_INVALID_ARGUMENT);
}

#if UFORM_EXCEPTIONS
static void exceptions(std::string const &path) {
    auto threads = uform::executor::for_ram({{}, 0, 2, 0});
    threads.drain(UFORM_MOOD_PARKED);
    threads.trim();
    auto model = uform::model::load_ram(path, threads);
    auto rows = model.on(threads).embed_texts({"a cat", "a dog"});
    CHECK(same(model.embed_texts({"a cat", "a dog"}), rows));
    CHECK(same(model.on(threads).embed_texts_deferred({"a cat", "a dog"}).wait(), rows));
    auto once = model.on(threads).embed_texts_deferred({"a cat", "a dog"});
    CHECK(same(once.wait(), rows));
    uform::matrix<float> host(2, rows.columns());
    std::vector<std::string> const texts = {"a cat", "a dog"};
    model.embed_texts_into(texts, {}, host.raw());
    CHECK(same(host, rows));
    host = uform::matrix<float>(2, rows.columns());
    model.on(threads).embed_texts_into_deferred(texts, {}, host.raw()).wait();
    CHECK(same(host, rows));
    auto bytes = model.on(threads).embed_texts<std::int8_t>(texts);
    CHECK(same(model.on(threads).embed_texts_deferred<std::int8_t>(texts).wait(), bytes));
    CHECK(model.clone().describe().dimensions == rows.columns() && model.tokenize("a").size() >= 3);
    CHECK(model.plan(threads, 1) > 0 && threads.describe().threads == 2);
    auto arena = uform::arena::new_in(threads);
    CHECK(arena.allocate(1, 8).rows == 1);
    int caught = 0;
    try {
        uform::model::load_ram("no/such/model");
    } catch (uform::error const &error) {
        caught += error.status() == UFORM_STATUS_NOT_FOUND && std::strstr(error.what(), "no/such/model");
    }
    try {
        model.on(threads).embed_texts({std::string_view("\xff")});
    } catch (std::runtime_error const &error) {
        caught += error.what()[0] != 0;
    }
    try {
        once.wait();
    } catch (uform::error const &error) {
        caught += error.status() == UFORM_STATUS_INVALID_ARGUMENT;
    }
    try {
        model.on(threads).embed_texts_into_deferred({"\xff", "a"}, {}, host.raw()).wait();
    } catch (uform::error const &error) {
        caught += error.status() == UFORM_STATUS_ROW_FAILED && std::strstr(error.what(), "row 0");
    }
    try {
        model.embed_texts_into({"a"}, {}, host.raw(), {nullptr, 5});
    } catch (uform::error const &error) {
        caught += error.status() == UFORM_STATUS_INVALID_ARGUMENT && std::strstr(error.what(), "expected 1, found 5");
    }
    CHECK(caught == 5);
}
#endif

int main(int count, char **arguments) {
    if (count != 2) return std::fprintf(stderr, "usage: %s MODEL\n", arguments[0]), 2;
    std::string const path = arguments[1];
    spans();
    matrices();
    names();
    executors();
    embedding(path);
    bytes(path);
    packing(path, std::string(arguments[0]) + ".safetensors");
    deferred_calls(path);
    dropped_inside(path);
    every_road(path);
    arenas(path);
#if UFORM_EXCEPTIONS
    exceptions(path);
#endif
    std::printf("cpp: %s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
