#define PCRE2_CODE_UNIT_WIDTH 8
#include "megalith/text/regex.h"

#include <pcre2.h>

#include <array>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

namespace {

// What a match needs besides the pattern; one for each thread.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  MatchState() {
    check(data != nullptr && stack != nullptr && context != nullptr, "regular expression: out of memory");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

constexpr std::string_view kWhiteSpace =
    R"(\t\n\x0b\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Replaces \s and \S, inside and outside of classes, by the White_Space property spelt out.
std::string spell_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 'Q') {  // Quoted up to \E, or to the end.
        const size_t end = pattern.find("\\E", i);
        const size_t stop = end == std::string_view::npos ? pattern.size() : end + 2;
        out.append(pattern.substr(i - 1, stop - i + 1));
        i = stop - 1;
      } else if (escaped == 's') {
        out.append(in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace));
      } else if (escaped == 'S') {
        out.append(in_class ? std::string("\\S\\x{180e}") : fmt::format("[^{}]", kWhiteSpace));
      } else {
        out.push_back(c);
        out.push_back(escaped);
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      out.push_back(c);
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out.push_back(pattern[++i]);
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out.push_back(pattern[++i]);  // A literal bracket.
      continue;
    }
    if (in_class && c == '[' && i + 1 < pattern.size() && pattern[i + 1] == ':') {  // [:alpha:] and the like.
      const size_t end = pattern.find(":]", i);
      if (end != std::string_view::npos) {
        out.append(pattern.substr(i, end + 2 - i));
        i = end + 1;
        continue;
      }
    }
    if (in_class && c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

}  // namespace

Regex::Regex(std::string_view pattern, std::string_view element)
    : pattern_(pattern), code_(std::make_unique<Code>()) {
  check_input(is_valid_utf8(pattern), "{}: the regular expression is not valid UTF-8", element);
  const std::string translated = spell_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // A backslash-C could split a character, and what follows relies on whole ones.
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  check_input(code_->code != nullptr, "{}: the regular expression '{}' is not supported: {}", element,
              pattern, error_text(error));
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  thread_local MatchState state;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int result = code_->jit ? pcre2_jit_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                                  state.data, state.context)
                                : pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                              state.data, state.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  check(result >= 0, "regular expression '{}' failed at byte {} of a text: {}", pattern_, from,
        error_text(result));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  begin = bounds[0];
  end = bounds[1];
  // \K can move the start past the end, or before `from`.
  check(begin >= from && end >= begin, "regular expression '{}' gave a match that runs backwards", pattern_);
  return true;
}

std::string quote_regex(std::string_view text) {
  constexpr std::string_view special = R"(\^$.|?*+()[]{}#-)";
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace megalith
