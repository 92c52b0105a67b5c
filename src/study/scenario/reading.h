#pragma once

// What this room reads tables and files with: the room config, whose names need no prefix here.

#include "study/config/bounds.h"
#include "study/config/document.h"
#include "study/config/files.h"
#include "study/config/network.h"
#include "study/config/reader.h"

namespace tulle::scenario {

using namespace config;

}  // namespace tulle::scenario
