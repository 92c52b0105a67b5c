#pragma once

// What this room reads tables and files with: the room config, whose names need no prefix here.

#include "config/bounds.h"
#include "config/document.h"
#include "config/files.h"
#include "config/network.h"
#include "config/reader.h"

namespace tulle::scenario {

using namespace config;

}  // namespace tulle::scenario
