#include "megalith/text/unicode_normalization.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

namespace {

struct Form {
  const icu::Normalizer2* composition = nullptr;    // for pairs, when the form composes
  const icu::Normalizer2* decomposition = nullptr;  // full mappings
  UProperty quick_check = UCHAR_NFC_QUICK_CHECK;
};

Form make_form(NormalizationForm form) {
  UErrorCode error = U_ZERO_ERROR;
  Form result;
  const bool compatible = form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
  const bool composes = form == NormalizationForm::nfc || form == NormalizationForm::nfkc;
  result.decomposition =
      compatible ? icu::Normalizer2::getNFKDInstance(error) : icu::Normalizer2::getNFDInstance(error);
  if (composes) result.composition = icu::Normalizer2::getNFCInstance(error);
  result.quick_check = composes ? (compatible ? UCHAR_NFKC_QUICK_CHECK : UCHAR_NFC_QUICK_CHECK)
                                : (compatible ? UCHAR_NFKD_QUICK_CHECK : UCHAR_NFD_QUICK_CHECK);
  check(U_SUCCESS(error) != 0, "Unicode normalization: ICU's data cannot be loaded: {}", u_errorName(error));
  return result;
}

const Form& form_of(NormalizationForm form) {
  static const std::array<Form, 4> forms = {
      make_form(NormalizationForm::nfc), make_form(NormalizationForm::nfd),
      make_form(NormalizationForm::nfkc), make_form(NormalizationForm::nfkd)};
  return forms[static_cast<size_t>(form)];
}

bool is_young(uint32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 9;
}

// A character that its form keeps whatever stands beside it, and before which nothing is joined.
bool is_inert(const Form& form, uint32_t c) {
  if (c < 0xA0 || (c >= 0x4E00 && c <= 0x9FFF)) return true;
  const auto point = static_cast<UChar32>(c);
  if (u_getIntPropertyValue(point, form.quick_check) == UNORM_YES && u_getCombiningClass(point) == 0)
    return true;
  return is_young(c);
}

// A character of the result. A change of 0 says that it replaces a character of the text, -n that it replaces
// n more, 1 that it stands beside what has been replaced.
struct Mapped {
  uint32_t character;
  int change;
  uint8_t combining_class;
};

void decompose(const Form& form, std::string_view segment, std::vector<Mapped>& out) {
  out.clear();
  icu::UnicodeString mapping;
  size_t sorted_from = 0;
  const auto order = [&] {
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(sorted_from), out.end(),
                     [](const Mapped& a, const Mapped& b) { return a.combining_class < b.combining_class; });
  };
  const auto push = [&](UChar32 c, int change) {
    const uint8_t combining_class = u_getCombiningClass(c);
    if (combining_class == 0) {
      order();
      out.push_back({static_cast<uint32_t>(c), change, 0});
      sorted_from = out.size();
    } else {
      out.push_back({static_cast<uint32_t>(c), change, combining_class});
    }
  };
  for (size_t at = 0; at < segment.size();) {
    const auto c = static_cast<UChar32>(next_code_point(segment, at));
    if (is_young(static_cast<uint32_t>(c)) || !form.decomposition->getDecomposition(c, mapping)) {
      push(c, 0);
      continue;
    }
    for (int32_t i = 0; i < mapping.length(); i = mapping.moveIndex32(i, 1))
      push(mapping.char32At(i), i == 0 ? 0 : 1);
  }
  order();
}

// The canonical composition algorithm (Unicode standard, D117), adding up changes: a pair that becomes one
// character takes one away.
void compose(const Form& form, std::vector<Mapped>& text) {
  std::vector<Mapped> out;
  out.reserve(text.size());
  size_t starter = text.size();  // In `out`; none yet.
  int last_class = -1;           // Of what stands between the starter and here; -1: nothing does.
  for (const Mapped& next : text) {
    if (starter < out.size() && (last_class == -1 || last_class < next.combining_class)) {
      const UChar32 joined = form.composition->composePair(static_cast<UChar32>(out[starter].character),
                                                           static_cast<UChar32>(next.character));
      if (joined >= 0 && !is_young(static_cast<uint32_t>(joined))) {
        out[starter].character = static_cast<uint32_t>(joined);
        out[starter].change += next.change - 1;
        continue;
      }
    }
    if (next.combining_class == 0) {
      starter = out.size();
      last_class = -1;
    } else {
      last_class = next.combining_class;
    }
    out.push_back(next);
  }
  text.swap(out);
}

}  // namespace

bool normalize(NormalizationForm which, const AlignedText& in, AlignedText& out) {
  const Form& form = form_of(which);
  const std::string_view text = in.bytes;
  bool changed = false;
  size_t done = 0;  // What stands before has been written.
  std::vector<Mapped> mapped;
  std::string written;
  const auto end_of_segment = [&](size_t at) {
    while (at < text.size()) {
      size_t next = at;
      if (is_inert(form, next_code_point(text, next))) break;
      at = next;
    }
    return at;
  };
  size_t previous = 0;  // The begin of the character before `at`.
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      previous = at++;
      continue;
    }
    size_t next = at;
    if (is_inert(form, next_code_point(text, next))) {
      previous = at;
      at = next;
      continue;
    }
    // From the inert character before, which may take part, to the next one.
    const size_t begin = std::max(previous, done);
    const size_t end = end_of_segment(next);
    const std::string_view segment = text.substr(begin, end - begin);
    decompose(form, segment, mapped);
    if (form.composition != nullptr) compose(form, mapped);
    written.clear();
    for (const Mapped& m : mapped) append_utf8(written, m.character);
    if (written != segment) {
      if (!changed) {
        out.clear_like(in);
        changed = true;
      }
      out.copy(in, done, begin);
      size_t source = begin;  // The character that the next one replaces.
      for (const Mapped& m : mapped) {
        if (m.change > 0) {  // It stands beside the one before and has its origin.
          out.put(m.character, in, source > 0 ? source - 1 : 0);
          continue;
        }
        out.put(m.character, in, source);
        for (int i = m.change; i <= 0 && source < end; ++i) next_code_point(text, source);
      }
      done = end;
    }
    at = end;  // An inert character, or the end.
  }
  if (changed) out.copy(in, done, text.size());
  return changed;
}

}  // namespace megalith
