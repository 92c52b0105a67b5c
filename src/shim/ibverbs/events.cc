// Events pass from the adapter into event queues (live::EventChannel), and from there to the
// program. Each completion channel has such a queue, and each context has one for asynchronous
// events.
//
// An object is not freed before the program has acknowledged every event of the object that it
// took. The object counts the events that were raised, the C struct counts the program's
// acknowledgements, and events that were raised and not yet taken are forgotten.

#include <algorithm>
#include <array>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

enum class Element : std::uint8_t { cq, qp, srq, wq, port };

struct EventName {
  verbs::EventType type;
  ibv_event_type c_api;
  Element element;
};
// Names in the order of verbs::EventType.
constexpr std::array<EventName, 18> event_names = {{
    {verbs::EventType::cq_error, IBV_EVENT_CQ_ERR, Element::cq},
    {verbs::EventType::qp_fatal, IBV_EVENT_QP_FATAL, Element::qp},
    {verbs::EventType::qp_request_error, IBV_EVENT_QP_REQ_ERR, Element::qp},
    {verbs::EventType::qp_access_error, IBV_EVENT_QP_ACCESS_ERR, Element::qp},
    {verbs::EventType::communication_established, IBV_EVENT_COMM_EST, Element::qp},
    {verbs::EventType::send_queue_drained, IBV_EVENT_SQ_DRAINED, Element::qp},
    {verbs::EventType::path_migrated, IBV_EVENT_PATH_MIG, Element::qp},
    {verbs::EventType::last_wqe_reached, IBV_EVENT_QP_LAST_WQE_REACHED, Element::qp},
    {verbs::EventType::srq_error, IBV_EVENT_SRQ_ERR, Element::srq},
    {verbs::EventType::srq_limit_reached, IBV_EVENT_SRQ_LIMIT_REACHED, Element::srq},
    {verbs::EventType::port_active, IBV_EVENT_PORT_ACTIVE, Element::port},
    {verbs::EventType::port_error, IBV_EVENT_PORT_ERR, Element::port},
    {verbs::EventType::gid_change, IBV_EVENT_GID_CHANGE, Element::port},
    {verbs::EventType::lid_change, IBV_EVENT_LID_CHANGE, Element::port},
    {verbs::EventType::sm_change, IBV_EVENT_SM_CHANGE, Element::port},
    {verbs::EventType::pkey_change, IBV_EVENT_PKEY_CHANGE, Element::port},
    {verbs::EventType::client_reregister, IBV_EVENT_CLIENT_REREGISTER, Element::port},
    {verbs::EventType::device_fatal, IBV_EVENT_DEVICE_FATAL, Element::port},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < event_names.size(); ++i) {
    if (static_cast<std::size_t>(event_names[i].type) != i) return false;
  }
  return true;
}
static_assert(in_order());

Element element_of(ibv_event_type type) {
  if (type == IBV_EVENT_WQ_FATAL) return Element::wq;
  const auto* found = std::find_if(event_names.begin(), event_names.end(),
                                   [type](const EventName& name) { return name.c_api == type; });
  return found != event_names.end() ? found->element : Element::port;
}

// The open contexts. The mutex is taken after a device's lock, never before it.
struct Listeners {
  std::mutex mutex;
  std::vector<Context*> contexts;
};
Listeners& listeners() {
  static auto* instance = new Listeners;
  return *instance;
}

// Returns the number of events that were raised: 0 if there was no memory for this one.
std::uint32_t raise(ibv_context* context, void* object, ibv_event_type type) {
  return Context::of(context).events->push({object, static_cast<std::uint32_t>(type)}) ? 1 : 0;
}

void raise_asynchronous(const device::Event& event) {
  const EventName& name = event_names[static_cast<std::size_t>(event.type)];
  switch (name.element) {
    case Element::cq: {
      auto* cq = static_cast<Cq*>(event.cq->cookie);
      cq->asynchronous_events += raise(cq->context, cq, name.c_api);
      return;
    }
    case Element::qp: {
      if (event.qp->type() == verbs::QpType::receive_work_queue) {
        auto* wq = static_cast<Wq*>(event.qp->init.cookie);
        wq->asynchronous_events += raise(wq->context, wq, IBV_EVENT_WQ_FATAL);
        return;
      }
      for (auto* qp = static_cast<Qp*>(event.qp->init.cookie); qp != nullptr;
           qp = qp->next_handle) {
        qp->asynchronous_events += raise(qp->qp_base.context, qp, name.c_api);
      }
      return;
    }
    case Element::srq: {
      auto* srq = static_cast<Srq*>(event.srq->cookie);
      srq->asynchronous_events += raise(srq->context, srq, name.c_api);
      return;
    }
    case Element::wq:
    case Element::port:
      break;
  }
  Listeners& all = listeners();
  const std::lock_guard guard(all.mutex);
  for (Context* context : all.contexts) (void)raise(&context->context, nullptr, name.c_api);
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, std::uint32_t& completed,
                 std::uint32_t count) {
  pthread_mutex_lock(&mutex);
  completed += count;
  pthread_cond_broadcast(&condition);
  pthread_mutex_unlock(&mutex);
}

// The channel's descriptor was readable, and no event came. The program may have polled it and must
// not be delayed, so that it gets an event of one of its queues although no completion has come. A
// program expects such events: a completion may have been polled before its event was taken. A
// queue that is not armed gets the event only if none is.
void raise_for(Context& context, const ibv_comp_channel& channel) {
  const auto guard = context.lock();
  verbs::CompletionQueue* chosen = nullptr;
  for (const Cq* cq : context.cqs) {
    if (cq->channel != &channel) continue;
    if (chosen == nullptr || cq->queue->is_armed()) chosen = cq->queue;
    if (chosen->is_armed()) break;
  }
  if (chosen == nullptr) return;
  chosen->raise();
  context.live->transmit();
}

// The caller is about to sleep, so that another thread must make progress.
void hand_over(ibv_context* ibv) {
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  context.live->hand_over();
}

}  // namespace

void handle_event(const device::Event& event) {
  if (event.kind == device::Event::Kind::asynchronous) return raise_asynchronous(event);
  auto* cq = static_cast<Cq*>(event.cq->cookie);
  if (cq->channel == nullptr) return;
  if (Channel::of(cq->channel).events->push({cq, 0})) ++cq->completion_events;
}

void make_room_for_events(Context& context) {
  context.events->reserve(context.cqs.size() + context.srqs.size() + context.qps.size() +
                          context.wqs.size() + 1);
}

void add_for_events(Context& context) {
  Listeners& all = listeners();
  const std::lock_guard guard(all.mutex);
  all.contexts.push_back(&context);
}

void remove_for_events(Context& context) {
  Listeners& all = listeners();
  const std::lock_guard guard(all.mutex);
  std::erase(all.contexts, &context);
}

void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition,
                               const std::uint32_t& completed, std::uint32_t taken) {
  pthread_mutex_lock(&mutex);
  while (completed != taken) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
}

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* ibv) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return fail(EINVAL);
  auto events = live::EventChannel::create();
  if (!events) return fail(events.error().error_number != 0 ? events.error().error_number : EMFILE);
  auto channel = std::make_unique<Channel>();
  channel->events = std::move(*events);
  channel->context = ibv;
  channel->fd = channel->events->fd();
  channel->refcnt = 0;
  return channel.release();
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int ibv_destroy_comp_channel(ibv_comp_channel* ibv) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return report(EINVAL);
  {
    const auto guard = Context::of(ibv->context).lock();
    if (ibv->refcnt > 0) return report(EBUSY);
    Context::of(ibv->context).live->forget(*Channel::of(ibv).events);
  }
  delete &Channel::of(ibv);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** out, void** cq_context) {
  const NoCancellation no_cancellation;
  if (channel == nullptr || out == nullptr || cq_context == nullptr) {
    return fail_with_minus_one(EINVAL);
  }
  Context& context = Context::of(channel->context);
  live::EventChannel& events = *Channel::of(channel).events;
  live::EventChannel::Item item;
  int error = context.live->take_event(events, item, false);
  if (error == ENOMSG) {
    raise_for(context, *channel);
    error = context.live->take_event(events, item, true);
  }
  if (error != 0) return fail_with_minus_one(error);
  *out = static_cast<Cq*>(item.object)->as_cq();
  *cq_context = (*out)->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  const NoCancellation no_cancellation;
  if (cq == nullptr || count == 0) return;
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const NoCancellation no_cancellation;
  if (context == nullptr || event == nullptr) return fail_with_minus_one(EINVAL);
  hand_over(context);
  live::EventChannel::Item item;
  if (const int error = Context::of(context).events->pop(item); error != 0) {
    return fail_with_minus_one(error);
  }
  event->event_type = static_cast<ibv_event_type>(item.type);
  event->element = {};
  switch (element_of(event->event_type)) {
    case Element::cq:
      event->element.cq = static_cast<Cq*>(item.object)->as_cq();
      break;
    case Element::qp:
      event->element.qp = static_cast<Qp*>(item.object)->as_qp();
      break;
    case Element::srq:
      event->element.srq = static_cast<Srq*>(item.object);
      break;
    case Element::wq:
      event->element.wq = static_cast<Wq*>(item.object);
      break;
    case Element::port:
      if (event->event_type != IBV_EVENT_DEVICE_FATAL) event->element.port_num = 1;
      break;
  }
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  const NoCancellation no_cancellation;
  if (event == nullptr) return;
  switch (element_of(event->event_type)) {
    case Element::cq: {
      ibv_cq& cq = *event->element.cq;
      return acknowledge(cq.mutex, cq.cond, cq.async_events_completed, 1);
    }
    case Element::qp: {
      ibv_qp& qp = *event->element.qp;
      return acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
    }
    case Element::srq: {
      ibv_srq& srq = *event->element.srq;
      return acknowledge(srq.mutex, srq.cond, srq.events_completed, 1);
    }
    case Element::wq: {
      ibv_wq& wq = *event->element.wq;
      return acknowledge(wq.mutex, wq.cond, wq.events_completed, 1);
    }
    case Element::port:
      return;
  }
}

}  // extern "C"

}  // namespace tulle::shim
