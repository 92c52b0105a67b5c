#pragma once

// This file keeps a list of the objects that exist. A program gets an error if it names an object
// by a pointer that was never one of this library's, or by that of a destroyed object. A kernel
// does the same, since it looks handles up.
// Only calls that do not move data ask; the others trust the program, as drivers do.

#include "shim/ibverbs/objects.h"

namespace tulle::shim {

// Says that a context has been opened, or is about to be closed.
void know(Context& context);
void forget(Context& context);

// Return true if the object was created and not destroyed. They follow no pointer, which may be
// null or lead anywhere.
bool is_known(ibv_pd* pd);
bool is_known(ibv_mr* region);
bool is_known(ibv_mw* window);
bool is_known(ibv_ah* handle);
bool is_known(ibv_cq* queue);
bool is_known(ibv_srq* queue);
bool is_known(ibv_qp* pair);

}  // namespace tulle::shim
