#pragma once

namespace tulle::live {

// Gives up what a host agent does not need, for good: all capabilities but CAP_NET_ADMIN (buffers
// of sockets, the mark of this host's datagrams) and CAP_NET_RAW (frames of RoCE v1), as far as it
// has those, and rights that programs bring along which it might start. An agent that is led astray
// by a message then does no more than its user's ordinary rights allow. Called before there are
// other threads, since each thread has capabilities of its own.
void give_up_privileges();

}  // namespace tulle::live
