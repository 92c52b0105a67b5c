#include "management/port_agents.h"

#include "rdma/wire/pma.h"
#include "rdma/wire/smp.h"

namespace tulle::management {

bool needs_counters(Request request) {
  return header_of(request).management_class == wire::performance_class &&
         performance::needs_counters(request);
}

bool answer(Request request, const subnet::Identity& identity,
            const performance::Counters& counters, Answer answer) {
  const wire::MadHeader header = header_of(request);
  switch (header.management_class) {
    case wire::performance_class:
      return performance::answer(request, counters, answer);
    case wire::subnet_class:
    case wire::subnet_directed_class:
      return subnet::answer(request, identity, answer);
    default:
      // Linux tells the sender of a request that no management agent serves its class, and so does
      // this port.
      if (!asks(header)) return false;
      begin_answer(request, Status::attribute_not_supported, 0, answer);
      return true;
  }
}

Way way_of(Request request) {
  if (header_of(request).management_class != wire::subnet_directed_class) return Way::addressed;
  return subnet::stays_here(request) ? Way::directed_here : Way::directed_on;
}

}  // namespace tulle::management
