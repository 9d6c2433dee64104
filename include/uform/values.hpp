// Spans, results and matrices of UForm for C++17; included by uform.hpp.

#ifndef UFORM_VALUES_HPP
#define UFORM_VALUES_HPP

#include "../uform.h"

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
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
        typename = std::enable_if_t<std::is_const_v<element> && std::is_same_v<value, std::remove_const_t<element>>>>
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

/// The bits of an IEEE 754 binary16.
struct f16 {
    std::uint16_t bits;
};
/// The upper 16 bits of a binary32.
struct bf16 {
    std::uint16_t bits;
};
/// Eight dimensions of one bit, the first in the most significant bit.
struct b1 {
    std::uint8_t bits;
};

/// The header's number for the type of an element.
template <typename element> constexpr uform_dtype_t dtype_of() noexcept {
    if constexpr (std::is_same_v<element, float>) return UFORM_DTYPE_F32;
    else if constexpr (std::is_same_v<element, f16>) return UFORM_DTYPE_F16;
    else if constexpr (std::is_same_v<element, bf16>) return UFORM_DTYPE_BF16;
    else if constexpr (std::is_same_v<element, std::int8_t>) return UFORM_DTYPE_I8;
    else if constexpr (std::is_same_v<element, std::uint8_t>) return UFORM_DTYPE_U8;
    else {
        static_assert(std::is_same_v<element, b1>, "expected float, f16, bf16, std::int8_t, std::uint8_t or b1");
        return UFORM_DTYPE_B1;
    }
}

/// Elements in memory that hold a row of so many columns: as many, but for b1.
template <typename element> constexpr std::size_t elements_of_row(std::size_t columns) noexcept {
    return std::is_same_v<element, b1> ? columns / 8 + (columns % 8 != 0) : columns;
}

/// Memory of the caller as rows of so many columns, one after the other: as many as fit.
template <typename element> uform_matrix_t rows_over(span<element> memory, std::size_t columns) noexcept {
    std::size_t const elements = elements_of_row<element>(columns);
    return {memory.data(), elements ? memory.size() / elements : 0, columns, elements * sizeof(element),
            dtype_of<element>(), 0};
}

/// Rows of vectors, one after the other without gaps.
template <typename element = float> class matrix {
  public:
    matrix() = default;
    matrix(std::size_t rows, std::size_t columns)
        : values_(rows * elements_of_row<element>(columns)), rows_(rows), columns_(columns) {}
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
    span<element> row(std::size_t index) noexcept { return {values_.data() + index * width(), width()}; }
    span<element const> row(std::size_t index) const noexcept { return {values_.data() + index * width(), width()}; }
    /// As uform.h takes it; it lives as long as the matrix.
    uform_matrix_t raw() noexcept {
        return {values_.data(), rows_, columns_, width() * sizeof(element), dtype_of<element>(), 0};
    }

  private:
    std::size_t width() const noexcept { return elements_of_row<element>(columns_); }

    std::vector<element> values_;
    std::size_t rows_ = 0, columns_ = 0;
};

} // namespace uform

#endif // UFORM_VALUES_HPP
