// An array handed in from Python, through the buffer protocol: checked here, trusted afterwards.

#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace headrace {

[[noreturn]] inline void refuse(const std::string& what) { throw std::invalid_argument(what); }

// Raises ValueError where a value of an index array is not in [0, limit).
inline void require_below(const char* name, const int32_t* values, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      refuse(std::string(name) + " " + std::to_string(values[i]) + " is not in [0, " +
             std::to_string(limit) + ")");
    }
  }
}

// A C-contiguous array of T with `ndim` dimensions. Raises ValueError naming it for another type or
// shape, TypeError for what is no array. bfloat16 has no buffer format: it comes as uint16.
template <class T>
class View {
 public:
  View(nanobind::handle object, const char* name, int ndim, bool writable = false) : name_(name) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nanobind::python_error();
    if (buffer_.ndim != ndim || !is_type()) {
      std::string text = std::string(name_) + " must be a C-contiguous " + type_name() +
                         " array of " + std::to_string(ndim) + " dimensions, not of " +
                         std::to_string(buffer_.ndim) + " and format '" + buffer_.format + "'";
      PyBuffer_Release(&buffer_);
      refuse(text);
    }
  }
  ~View() { PyBuffer_Release(&buffer_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  T* data() const { return static_cast<T*>(buffer_.buf); }
  int64_t size(int dimension) const { return buffer_.shape[dimension]; }

  void require(int dimension, int64_t size) const {
    if (buffer_.shape[dimension] != size) {
      refuse(std::string(name_) + ": dimension " + std::to_string(dimension) + " is " +
             std::to_string(buffer_.shape[dimension]) + ", must be " + std::to_string(size));
    }
  }
  // Every value of an index array must lie in [0, limit).
  void require_below(int64_t limit) const {
    headrace::require_below(name_, data(), buffer_.len / buffer_.itemsize, limit);
  }

 private:
  bool is_type() const {
    const char* format = buffer_.format;
    if (*format == '<' || *format == '=' || *format == '@') ++format;
    if (buffer_.itemsize != sizeof(T) || std::strlen(format) != 1) return false;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      return *format == (sizeof(T) == 4 ? 'f' : 'd');
    } else if constexpr (std::is_signed_v<T>) {
      return std::strchr("bhilq", *format) != nullptr;
    } else {
      return std::strchr("BHILQ", *format) != nullptr;
    }
  }
  static const char* type_name() {
    if constexpr (std::is_same_v<T, float>) return "float32";
    if constexpr (std::is_same_v<T, double>) return "float64";
    if constexpr (std::is_same_v<T, int32_t>) return "int32";
    if constexpr (std::is_same_v<T, uint32_t>) return "uint32";
    if constexpr (std::is_same_v<T, uint64_t>) return "uint64";
    if constexpr (std::is_same_v<T, int8_t>) return "int8";
    return "uint8";
  }

  const char* name_;
  Py_buffer buffer_;
};

// Bytes of `ndim` dimensions, read only, any of them apart but those of the last. Raises ValueError
// naming it for another type or shape.
class StridedView {
 public:
  StridedView(nanobind::handle object, const char* name, int ndim) : name_(name) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0) {
      throw nanobind::python_error();
    }
    bool good = buffer_.ndim == ndim && buffer_.itemsize == 1 && buffer_.format != nullptr &&
                std::strcmp(buffer_.format, "B") == 0 && stride(ndim - 1) == 1;
    for (int i = 0; good && i < ndim; ++i) good = stride(i) >= 0;
    if (!good) {
      PyBuffer_Release(&buffer_);
      refuse(std::string(name_) + " must be a uint8 array of " + std::to_string(ndim) +
             " dimensions, none of them backwards and the last one in one piece");
    }
  }
  ~StridedView() { PyBuffer_Release(&buffer_); }
  StridedView(const StridedView&) = delete;
  StridedView& operator=(const StridedView&) = delete;

  const uint8_t* data() const { return static_cast<const uint8_t*>(buffer_.buf); }
  int64_t size(int dimension) const { return buffer_.shape[dimension]; }
  int64_t stride(int dimension) const { return buffer_.strides[dimension]; }

  void require(int dimension, int64_t size) const {
    if (buffer_.shape[dimension] != size) {
      refuse(std::string(name_) + ": dimension " + std::to_string(dimension) + " is " +
             std::to_string(buffer_.shape[dimension]) + ", must be " + std::to_string(size));
    }
  }

 private:
  const char* name_;
  Py_buffer buffer_;
};

// An array that may be None.
template <class T>
class OptionalView {
 public:
  OptionalView(nanobind::handle object, const char* name, int ndim)
      : given_(!object.is_none()) {
    if (given_) new (&storage_) View<T>(object, name, ndim);
  }
  ~OptionalView() {
    if (given_) view().~View<T>();
  }
  OptionalView(const OptionalView&) = delete;
  OptionalView& operator=(const OptionalView&) = delete;

  explicit operator bool() const { return given_; }
  T* data() const { return given_ ? view().data() : nullptr; }
  void require(int dimension, int64_t size) const {
    if (given_) view().require(dimension, size);
  }
  const View<T>& view() const { return *reinterpret_cast<const View<T>*>(&storage_); }

 private:
  bool given_;
  alignas(View<T>) unsigned char storage_[sizeof(View<T>)];
};

}  // namespace headrace
