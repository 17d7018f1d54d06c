#include "megalith/comm/agreement.h"

namespace megalith {

void agree(Communicator& ranks, const std::function<void()>& work) {
  if (ranks.size() == 1) return work();
  // The first character says what kind of error it is.
  std::string failure;
  try {
    const UntimedWork untimed(ranks);
    work();
  } catch (const InputError& error) {
    failure = std::string("i") + error.what();
  } catch (const std::exception& error) {
    failure = std::string("e") + error.what();
  }
  const std::vector<std::string> all = ranks.gather_texts(failure);
  size_t first = 0, failed = 0;
  bool same = true;
  for (size_t rank = all.size(); rank-- > 0;) {
    same = same && all[rank] == all[0];
    if (all[rank].empty()) continue;
    first = rank;
    ++failed;
  }
  if (failed == 0) return;
  const std::string text = all[first].substr(1);
  throw AgreedError(same ? text : fmt::format("rank {} (of {} that failed): {}", first, failed, text),
                    all[first][0] == 'i');
}

}  // namespace megalith
