// A checkpoint of many ranks as one file set.
#pragma once

#include <filesystem>

#include "megalith/formats/checkpoint_directory.h"

namespace megalith {

/// Writes what `reader` has, bit for bit, as one process would have written it: every tensor whole, the
/// shards NAME-00001-of-0000N.safetensors joined into NAME.safetensors, all other files as they are. One
/// tensor at a time is in memory.
void consolidate_checkpoint(const CheckpointReader& reader, const std::filesystem::path& directory);

}  // namespace megalith
