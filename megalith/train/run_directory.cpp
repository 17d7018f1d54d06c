#include "megalith/train/run_directory.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/formats/checkpoint_directory.h"

namespace megalith {

namespace fs = std::filesystem;

std::optional<fs::path> RunDirectory::prepare(const std::string& resume) {
  std::error_code code;
  fs::create_directories(path_ / "checkpoints", code);
  check_input(!code, "cannot create {}: {}", (path_ / "checkpoints").string(), code.message());
  lock_.emplace(path_ / ".lock", path_.string());
  const auto existing = list_checkpoints(path_);
  if (resume == "none") {
    check_input(existing.empty(),
                "{} holds a run already; choose another --output, or --resume auto to go on with it",
                path_.string());
  }
  std::optional<fs::path> from;
  if (resume == "auto") {
    if (!existing.empty()) from = existing.back().second;
  } else if (resume != "none") {
    from = find_checkpoint(resume);
    check_input(from.has_value(), "--resume {}: there is no complete checkpoint", resume);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_ / "checkpoints")) {
    if (entry.path().extension() == ".partial") fs::remove_all(entry.path());
  }
  return from;
}

void RunDirectory::read(const fs::path& checkpoint, const std::function<void()>& read) const {
  try {
    read();
  } catch (const InputError& error) {
    std::string advice;
    const auto own = list_checkpoints(path_);
    for (size_t i = 1; i < own.size(); ++i) {
      if (own[i].second != checkpoint) continue;
      advice = fmt::format("; --resume {} begins from the checkpoint before it", own[i - 1].second.string());
    }
    throw InputError(error.what() + advice);
  }
}

bool RunDirectory::set_later_checkpoints_aside(const fs::path& begun_from, int64_t begun_step) const {
  const auto own = list_checkpoints(path_);
  const bool is_own = std::any_of(own.begin(), own.end(), [&](const auto& entry) {
    std::error_code code;
    return fs::equivalent(entry.second, begun_from, code);
  });
  for (const auto& [step, path] : own) {
    if (step < begun_step || (is_own && step == begun_step)) continue;
    fs::path aside = path;
    aside += ".set-aside";
    fs::remove_all(aside);
    fs::rename(path, aside);
    log_info("{} belongs to the part that is done again; it is now {}", path.string(),
             aside.filename().string());
  }
  return is_own;
}

std::string RunDirectory::last_checkpoint() const {
  const auto checkpoints = list_checkpoints(path_);
  return checkpoints.empty() ? "there is no checkpoint yet"
                             : "the last good checkpoint is " + checkpoints.back().second.string();
}

}  // namespace megalith
