// What differs between the recipe that a checkpoint was trained with and the one that goes on from it.
#pragma once

#include <string>
#include <vector>

namespace megalith {

/// "train.seed: 1 -> 2" for every key of [data], [train], [optimizer] and [schedule] that differs between two
/// resolved recipes in TOML (Recipe::to_toml). Keys that cannot change a step's numbers are left out.
std::vector<std::string> recipe_changes(const std::string& stored, const std::string& current);

}  // namespace megalith
