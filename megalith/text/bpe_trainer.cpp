#include "megalith/text/bpe_trainer.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <exception>
#include <queue>
#include <set>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/split_pattern.h"
#include "megalith/text/stretch.h"
#include "megalith/text/tokenizer_writer.h"
#include "megalith/text/word_counter.h"

namespace megalith {

namespace {

constexpr size_t kStretchBytes = 256 * 1024;

// Adjacent pairs, their counts, and the words that hold (or held) them.
class PairIndex {
 public:
  static uint64_t key_of(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  PairIndex() : slots_(size_t{1} << 16, 0) {}

  // The number of a pair, given out in the order of first asking.
  uint32_t number(int32_t left, int32_t right) {
    const uint64_t key = key_of(left, right);
    const size_t mask = slots_.size() - 1;
    size_t slot = hash(key) & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (keys_[slots_[slot] - 1] == key) return slots_[slot] - 1;
    }
    keys_.push_back(key);
    counts_.push_back(0);
    words_.emplace_back();
    touched_.push_back(0);
    slots_[slot] = static_cast<uint32_t>(keys_.size());
    if (keys_.size() * 2 > slots_.size()) grow();
    return static_cast<uint32_t>(keys_.size() - 1);
  }
  size_t size() const { return keys_.size(); }
  uint64_t key(uint32_t pair) const { return keys_[pair]; }
  int64_t& count(uint32_t pair) { return counts_[pair]; }
  std::vector<uint32_t>& words(uint32_t pair) { return words_[pair]; }
  uint32_t& touched(uint32_t pair) { return touched_[pair]; }

 private:
  static size_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key ^ (key >> 32));
  }
  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < keys_.size(); ++i) {
      size_t slot = hash(keys_[i]) & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<uint32_t>(i + 1);
    }
  }

  std::vector<uint32_t> slots_;  // Number + 1 of a pair, 0 for none.
  std::vector<uint64_t> keys_;
  std::vector<int64_t> counts_;
  std::vector<std::vector<uint32_t>> words_;
  std::vector<uint32_t> touched_;  // The last merge that raised the pair's count.
};

struct Candidate {
  int64_t count;
  uint64_t key;
  uint32_t pair;
  // The queue's top is the highest count, then the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

// A word as the ids of its parts, inside one array of all words.
struct Word {
  uint64_t offset;
  uint32_t length;
  int64_t count;
};

// Learns merges from counted words.
class MergeLearner {
 public:
  MergeLearner(const WordCounter& counter, const std::array<int32_t, 256>& byte_ids) {
    uint64_t symbols = 0;
    for (size_t i = 0; i < counter.size(); ++i) symbols += counter.word(i).size();
    symbols_.reserve(symbols);
    words_.reserve(counter.size());
    for (size_t i = 0; i < counter.size(); ++i) {
      const std::string_view text = counter.word(i);
      if (text.size() < 2 || counter.count(i) <= 0) continue;
      words_.push_back({symbols_.size(), static_cast<uint32_t>(text.size()), counter.count(i)});
      for (const char c : text) symbols_.push_back(byte_ids[static_cast<unsigned char>(c)]);
    }
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const int32_t* symbols_of_word = symbols_.data() + words_[w].offset;
      for (uint32_t i = 0; i + 1 < words_[w].length; ++i)
        change(symbols_of_word[i], symbols_of_word[i + 1], 1, w);
    }
    for (uint32_t pair = 0; pair < pairs_.size(); ++pair) push(pair);
  }

  // The pair to merge next, or false when none is left with the wanted count.
  bool next(int64_t minimum_count, Candidate& best) {
    while (!queue_.empty()) {
      best = queue_.top();
      queue_.pop();
      // Counts sink without the queue being told; a stale entry goes back with what it is worth now.
      const int64_t now = pairs_.count(best.pair);
      if (best.count != now) {
        best.count = now;
        if (now > 0) queue_.push(best);
        continue;
      }
      return best.count >= minimum_count;
    }
    return false;
  }

  void merge(const Candidate& pair, int32_t id) {
    ++merges_;
    raised_.clear();
    const auto left = static_cast<int32_t>(pair.key >> 32);
    const auto right = static_cast<int32_t>(pair.key & 0xFFFFFFFFu);
    // Taken out: changing counts can move the list.
    const std::vector<uint32_t> words = std::move(pairs_.words(pair.pair));
    pairs_.words(pair.pair) = {};
    for (const uint32_t w : words) merge_in_word(w, left, right, id);
    pairs_.count(pair.pair) = 0;
    for (const uint32_t raised : raised_) push(raised);
  }

 private:
  void push(uint32_t pair) {
    if (pairs_.count(pair) > 0) queue_.push({pairs_.count(pair), pairs_.key(pair), pair});
  }

  void change(int32_t left, int32_t right, int64_t times, uint32_t word) {
    const uint32_t pair = pairs_.number(left, right);
    pairs_.count(pair) += times * words_[word].count;
    if (times < 0) return;
    auto& list = pairs_.words(pair);
    if (list.empty() || list.back() != word) list.push_back(word);
    if (pairs_.touched(pair) != merges_) {
      pairs_.touched(pair) = merges_;
      raised_.push_back(pair);
    }
  }

  void merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t id) {
    Word& word = words_[w];
    int32_t* const symbols = symbols_.data() + word.offset;
    uint32_t written = 0;
    for (uint32_t read = 0; read < word.length; ++read) {
      if (symbols[read] != left || read + 1 >= word.length || symbols[read + 1] != right) {
        symbols[written++] = symbols[read];
        continue;
      }
      if (written > 0) {
        change(symbols[written - 1], left, -1, w);
        change(symbols[written - 1], id, 1, w);
      }
      if (read + 2 < word.length) {
        change(right, symbols[read + 2], -1, w);
        change(id, symbols[read + 2], 1, w);
      }
      symbols[written++] = id;
      ++read;
    }
    word.length = written;
  }

  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  PairIndex pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint32_t> raised_;
  uint32_t merges_ = 1;
};

}  // namespace

struct BpeTrainer::State {
  BpeTrainerOptions options;
  FastSplitter splitter = FastSplitter::none;
  std::vector<WordCounter> counters;  // One a thread.

  void add_piece(WordCounter& counter, std::string_view piece) const {
    while (piece.size() > options.maximum_piece_bytes) {
      size_t length = options.maximum_piece_bytes;
      while (length > 1 && (static_cast<unsigned char>(piece[length]) & 0xC0) == 0x80) --length;
      if (length == 1)
        length = options.maximum_piece_bytes;  // No character begins here: bytes without meaning.
      counter.add(piece.substr(0, length), 1);
      piece.remove_prefix(length);
    }
    counter.add(piece, 1);
  }

  void count(WordCounter& counter, std::string_view text, std::vector<size_t>& ends) const {
    while (!text.empty()) {
      const size_t valid = valid_utf8_prefix(text);
      ends.clear();
      split_fast(splitter, text.substr(0, valid), 0, ends);
      size_t begin = 0;
      for (const size_t end : ends) {
        add_piece(counter, text.substr(begin, end - begin));
        begin = end;
      }
      text.remove_prefix(valid);
      if (text.empty()) break;
      const size_t invalid = invalid_run(text);
      add_piece(counter, text.substr(0, invalid));
      text.remove_prefix(invalid);
    }
  }
};

BpeTrainer::BpeTrainer(BpeTrainerOptions options) : state_(std::make_unique<State>()) {
  const auto smallest = static_cast<int64_t>(256 + options.special_tokens.size());
  check_input(options.vocabulary_size >= smallest && options.vocabulary_size < (1 << 24),
              "vocabulary size {}: must be from {} (256 bytes and {} special tokens) to {}",
              options.vocabulary_size, smallest, options.special_tokens.size(), (1 << 24) - 1);
  check_input(options.minimum_count >= 1, "minimum count {}: must be at least 1", options.minimum_count);
  check_input(options.maximum_piece_bytes >= 4, "maximum piece length {}: must be at least 4 bytes",
              options.maximum_piece_bytes);
  std::set<std::string_view> seen;
  for (const std::string& token : options.special_tokens) {
    check_input(!token.empty(), "a special token is empty");
    check_input(is_valid_utf8(token), "a special token is not valid UTF-8");
    check_input(seen.insert(token).second, "special token '{}' is given twice", token);
    // Such a token could not be told from a piece of the vocabulary.
    const auto bytes = unspell_bytes(token);
    check_input(!bytes || (*bytes == token && token.size() > 1),
                "special token '{}' is spelled like a piece of the byte alphabet", token);
  }
  state_->splitter = fast_splitter(split_pattern(options.pattern));
  state_->counters.resize(static_cast<size_t>(std::max(1, options.threads)));
  state_->options = std::move(options);
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_documents(std::span<const std::string_view> documents) {
  std::vector<std::string_view> stretches;
  for (std::string_view document : documents) {
    while (!document.empty()) {
      const size_t length = stretch(document, Cuts::spaces_and_lines, kStretchBytes);
      stretches.push_back(document.substr(0, length));
      document.remove_prefix(length);
    }
  }
  std::exception_ptr failure;
#pragma omp parallel num_threads(static_cast <int>(state_->counters.size()))
  {
    WordCounter& counter = state_->counters[static_cast<size_t>(omp_get_thread_num())];
    std::vector<size_t> ends;
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < stretches.size(); ++i) {
      try {
        state_->count(counter, stretches[i], ends);
      } catch (...) {
#pragma omp critical(megalith_bpe_trainer)
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void BpeTrainer::add_word(std::string_view bytes, int64_t count) {
  state_->counters[0].add(bytes, count);
}

Tokenizer BpeTrainer::train(const std::function<void(int64_t, int64_t)>& progress) {
  const BpeTrainerOptions& options = state_->options;
  for (size_t i = 1; i < state_->counters.size(); ++i) {
    state_->counters[0].add_all(state_->counters[i]);
    state_->counters[i] = WordCounter();
  }

  ByteLevelVocabulary vocabulary{
      .special_tokens = options.special_tokens, .pieces = {}, .merges = {}, .pattern = options.pattern};
  const auto first_piece = static_cast<int32_t>(options.special_tokens.size());
  std::array<int, 256> order{};
  for (int byte = 0; byte < 256; ++byte) order[static_cast<size_t>(byte)] = byte;
  std::sort(order.begin(), order.end(), [](int a, int b) {
    return byte_alphabet()[static_cast<size_t>(a)] < byte_alphabet()[static_cast<size_t>(b)];
  });
  std::array<int32_t, 256> byte_ids{};
  std::unordered_map<std::string, int32_t> id_of;
  const auto add_piece = [&](std::string bytes) {
    const auto id = static_cast<int32_t>(first_piece + static_cast<int32_t>(vocabulary.pieces.size()));
    id_of.emplace(bytes, id);
    vocabulary.pieces.push_back(std::move(bytes));
    return id;
  };
  for (const int byte : order)
    byte_ids[static_cast<size_t>(byte)] = add_piece(std::string(1, static_cast<char>(byte)));
  const std::set<std::string, std::less<>> special(options.special_tokens.begin(),
                                                   options.special_tokens.end());

  MergeLearner learner(state_->counters[0], byte_ids);
  state_->counters[0] = WordCounter();
  const int64_t wanted = options.vocabulary_size - first_piece;
  Candidate best{};
  while (static_cast<int64_t>(vocabulary.pieces.size()) < wanted &&
         learner.next(options.minimum_count, best)) {
    const auto left = static_cast<int32_t>(best.key >> 32);
    const auto right = static_cast<int32_t>(best.key & 0xFFFFFFFFu);
    const auto piece = [&](int32_t id) -> const std::string& {
      return vocabulary.pieces[static_cast<size_t>(id - first_piece)];
    };
    std::string joined = piece(left) + piece(right);
    // A special token must never come out of ordinary text.
    if (special.contains(joined)) continue;
    const auto known = id_of.find(joined);  // Joined before from other parts.
    const int32_t id = known != id_of.end() ? known->second : add_piece(std::move(joined));
    vocabulary.merges.emplace_back(left, right);
    learner.merge(best, id);
    if (progress && vocabulary.merges.size() % 256 == 0) {
      progress(static_cast<int64_t>(vocabulary.pieces.size()), wanted);
    }
  }
  if (progress) progress(static_cast<int64_t>(vocabulary.pieces.size()), wanted);
  return Tokenizer::from_json(write_tokenizer_json(vocabulary), "trained tokenizer");
}

}  // namespace megalith
