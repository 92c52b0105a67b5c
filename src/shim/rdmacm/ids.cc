// Event channels and ids: makes them, finds them by the host agent's numbers, and ends them. Ending
// an id waits until the program has acknowledged every event of it that it took.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "os/cancellation.h"
#include "shim/rdmacm/objects.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::shim::rdmacm {
namespace {

// The numbers are one host agent's. An agent that starts after the death of another may give the
// same numbers again.
using Key = std::pair<const rdma_event_channel*, std::uint32_t>;

using Ids = std::map<Key, Id*>;
struct Registry {
  std::mutex mutex;
  Ids ids;
};
// Events of its parent's ids do not come to a forked child.
Registry& registry() { return rsockets::of_process<Registry>(); }

Key key_of(const Id& id) { return {id.channel, id.endpoint.value}; }

// Makes an entry before the host agent knows the id, so that adding it cannot fail.
Ids::node_type make_entry(Id& id) {
  Ids one;
  one.emplace(Key{}, &id);
  return one.extract(one.begin());
}

// The caller holds the mutex.
void add_locked(Id& id, Ids::node_type entry) {
  Registry& all = registry();
  entry.key() = key_of(id);
  all.ids.erase(entry.key());
  all.ids.insert(std::move(entry));
}

void add(Id& id, Ids::node_type entry) {
  const std::lock_guard guard(registry().mutex);
  add_locked(id, std::move(entry));
}

// Programs print an errno at best. This line says what the first error was about.
void say_once(const Error& error) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) std::fprintf(stderr, "tulle: %s\n", error.message.c_str());
}

void free_id(Id* id) {
  std::free(id->route.path_rec);
  rdma_freeaddrinfo(id->resolved);
  if (id->synchronous) delete &Channel::of(id->channel);
  delete id;
}

struct FreeId {
  void operator()(Id* id) const { free_id(id); }
};
using IdPtr = std::unique_ptr<Id, FreeId>;

// Makes an id with its channel. The host agent does not know the id yet.
int allocate(rdma_event_channel* channel, void* context, rdma_port_space port_space,
             ibv_qp_type type, IdPtr& out) {
  IdPtr id(new Id());
  id->context = context;
  id->ps = port_space;
  id->qp_type = type;
  id->channel = channel;
  if (channel == nullptr) {
    Channel* own = nullptr;
    if (const int error = create_channel(own); error != 0) return error;
    id->channel = own;
    id->synchronous = true;
  }
  out = std::move(id);
  return 0;
}

bool is_known(rdma_port_space port_space) {
  return port_space == RDMA_PS_TCP || port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB ||
         port_space == RDMA_PS_IB;
}

Multicast* find_group(Id& id, const Gid& mgid) {
  const std::lock_guard guard(id.mutex);
  for (Multicast& group : id.groups) {
    if (from_c(reinterpret_cast<const sockaddr*>(&group.address)).gid() == mgid) return &group;
  }
  return nullptr;
}

}  // namespace

int create_channel(Channel*& out) {
  auto opened = live::ConnectionChannel::open();
  if (!opened) {
    say_once(opened.error());
    return opened.error().error_number != 0 ? opened.error().error_number : ENODEV;
  }
  auto channel = std::make_unique<Channel>();
  channel->agent = std::move(*opened);
  channel->fd = channel->agent->event_fd();
  out = channel.release();
  return 0;
}

int create_id(rdma_event_channel* channel, void* context, rdma_port_space port_space,
              ibv_qp_type type, Id*& out) {
  if (!is_known(port_space)) return EPROTONOSUPPORT;
  IdPtr id;
  if (const int error = allocate(channel, context, port_space, type, id); error != 0) return error;
  Ids::node_type entry = make_entry(*id);
  const int error = id->agent().create(static_cast<live::PortSpace>(port_space),
                                       static_cast<live::ConnectionQpType>(type), id->endpoint);
  if (error != 0) return error;
  add(*id, std::move(entry));
  out = id.release();
  return 0;
}

int adopt_id(Id& listener, const live::event::ConnectRequest& request, Id*& out) {
  IdPtr id;
  Ids::node_type entry;
  int error = 0;
  try {
    error = allocate(listener.channel, listener.context, listener.ps, listener.qp_type, id);
    if (error == 0) entry = make_entry(*id);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == ENOMEM) return error;
  if (error != 0) {
    std::uint32_t ignored = 0;
    listener.agent().destroy(request.endpoint, ignored);
    return error;
  }
  id->endpoint = request.endpoint;
  id->attributes = request.attributes;
  id->awaits_acceptance = true;
  add(*id, std::move(entry));
  out = id.release();
  if (listener.synchronous) error = migrate_id(*out, nullptr);
  if (error == 0) error = fill(*out, request.known);
  if (error != 0) destroy_id(*out);
  return error;
}

int destroy_id(Id& id) {
  std::uint32_t ignored = 0;
  const int error = id.agent().destroy(id.endpoint, ignored);
  // ENODEV and EINVAL are no errors here: what the host agent knew of the id is gone with the
  // agent, or with an earlier failure.
  if (error != 0 && error != ENODEV && error != EINVAL) return error;
  std::uint32_t taken = 0;
  Registry& all = registry();
  {
    const std::lock_guard guard(all.mutex);
    all.ids.erase(key_of(id));
    taken = id.events_taken;
  }
  if (id.event != nullptr) rdma_ack_cm_event(id.event);
  {
    std::unique_lock lock(id.mutex);
    id.acknowledged.wait(lock, [&] { return id.events_acknowledged == taken; });
  }
  free_id(&id);
  return 0;
}

int migrate_id(Id& id, rdma_event_channel* channel) {
  if (channel == nullptr && id.synchronous) return EINVAL;
  const bool synchronous = channel == nullptr;
  if (synchronous) {
    Channel* own = nullptr;
    if (const int error = create_channel(own); error != 0) return error;
    channel = own;
  }
  rdma_event_channel* old = id.channel;
  std::uint32_t taken = 0;
  int error = 0;
  Registry& all = registry();
  {
    // While the mutex is held, no thread looks for an event of the new channel before the id is
    // registered there.
    const std::lock_guard guard(all.mutex);
    error = id.agent().migrate(id.endpoint, *Channel::of(channel).agent);
    if (error == 0) {
      Ids::node_type entry = all.ids.extract(key_of(id));
      id.channel = channel;
      add_locked(id, std::move(entry));
      taken = id.events_taken;
    }
  }
  if (error != 0) {
    if (synchronous) delete &Channel::of(channel);
    return error;
  }
  if (id.synchronous) {
    if (id.event != nullptr) rdma_ack_cm_event(id.event);
    id.event = nullptr;
    delete &Channel::of(old);
  }
  id.synchronous = synchronous;
  std::unique_lock lock(id.mutex);
  id.acknowledged.wait(lock, [&] { return id.events_acknowledged >= taken; });
  return 0;
}

Id* take_event(Channel& channel, const live::ConnectionEvent& event, Multicast*& group) {
  const live::EndpointId endpoint = live::counted_with(event);
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  const auto found = all.ids.find({&channel, endpoint.value});
  if (found == all.ids.end()) return nullptr;
  Id& id = *found->second;
  if (const auto* joined = std::get_if<live::event::MulticastJoined>(&event)) {
    group = find_group(id, joined->address);
    if (group == nullptr) return nullptr;
    ++group->events_taken;
  }
  ++id.events_taken;
  return &id;
}

void acknowledge(Id& id, Multicast* group) {
  // Notifies with the mutex held, because the thread that waits frees the id.
  const std::lock_guard guard(id.mutex);
  ++id.events_acknowledged;
  if (group != nullptr) ++group->events_acknowledged;
  id.acknowledged.notify_all();
}

extern "C" {

rdma_event_channel* rdma_create_event_channel() try {
  const NoCancellation no_cancellation;
  Channel* channel = nullptr;
  if (answer(create_channel(channel)) != 0) return nullptr;
  return channel;
} catch (const std::bad_alloc&) {
  return without_memory<rdma_event_channel*, 0>();
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  const NoCancellation no_cancellation;
  if (channel == nullptr) return;
  Channel& gone = Channel::of(channel);
  {
    const std::lock_guard guard(gone.mutex);
    gone.is_destroyed = gone.waiting > 0;
    if (gone.is_destroyed) return gone.agent->end();
  }
  delete &gone;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
                   rdma_port_space port_space) try {
  const NoCancellation no_cancellation;
  if (out == nullptr) return answer(EINVAL);
  const bool is_datagram = port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB;
  Id* id = nullptr;
  const int error =
      create_id(channel, context, port_space, is_datagram ? IBV_QPT_UD : IBV_QPT_RC, id);
  if (error == 0) *out = id;
  return answer(error);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_destroy_id(rdma_cm_id* id) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(destroy_id(Id::of(id)));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(migrate_id(Id::of(id), channel));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
