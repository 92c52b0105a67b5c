// `tulle calibrate`: measures this machine for simulations of collectives among its processes.

#include "cli/commands.h"

namespace tulle::cli {

int calibrate(const CalibrateOptions&) { return fail("not yet"); }

}  // namespace tulle::cli
