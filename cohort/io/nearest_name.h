#pragma once

#include <string>

namespace cohort::io {

/// What to say of a path that does not exist, for the end of a sentence: that its folder does not
/// exist, or which name in the folder is most like it; empty if none is. Never throws for what
/// the file system says.
std::string hint_for_missing(const std::string& path);

}  // namespace cohort::io
