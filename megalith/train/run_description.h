// What a run would do, without doing it.
#pragma once

#include <string>

#include "megalith/train/recipe.h"

namespace megalith {

/// Parameters, batch arithmetic, the grid and who holds what of the model, memory and messages, for
/// `train --dry-run`. `ranks` 0 means as few as the layout takes. Throws InputError when the layout does not
/// work.
std::string describe_run(Recipe recipe, int ranks);

}  // namespace megalith
