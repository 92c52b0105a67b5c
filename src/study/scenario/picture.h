#pragma once

// Reads the settings of a picture: the table [picture].

#include <vector>

#include "study/report/picture_settings.h"
#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

report::PictureSettings read_picture(TableReader table, const std::vector<Variant>& variants);

}  // namespace tulle::scenario
