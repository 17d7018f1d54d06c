#include "megalith/base/float16.h"

#include <immintrin.h>

namespace megalith {

Float16::Float16(float value) : bits(static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT))) {}

Float16::operator float() const {
  return _cvtsh_ss(bits);
}

}  // namespace megalith
