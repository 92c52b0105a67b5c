#pragma once

#include <string>

namespace tulle::live {

// Gives up what a host agent does not need, for good: all capabilities but CAP_NET_ADMIN (buffers
// of sockets, the mark of this host's datagrams) and CAP_NET_RAW (frames of RoCE v1), as far as it
// has those, and rights that programs bring along which it might start. An agent that is led astray
// by a message then does no more than its user's ordinary rights allow. It also gives up the system
// calls by which an intruder would proceed: it starts no process and no program, signals and
// inspects no other process, and enters no namespace (seccomp(2)); and it writes, makes and removes
// no file but `removes`, its socket's, which it removes at its end (landlock(7)). A kernel that
// lacks either does without it. Called before there are other threads, since each thread has its
// own capabilities.
void give_up_privileges(const std::string& removes);

}  // namespace tulle::live
