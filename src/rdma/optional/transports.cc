#include "rdma/optional/transports.h"

#include "rdma/optional/iwarp/engine.h"
#include "rdma/optional/srd/engine.h"
#include "rdma/optional/tcp/engine.h"

namespace tulle::transport {

const TransportTable& all_transports() {
  static const TransportTable table = [] {
    TransportTable all = TransportTable::standard();
    for (const Transport* row : {&srd::transport, &tcp::transport, &iwarp::transport})
      all.add(*row);
    return all;
  }();
  return table;
}

}  // namespace tulle::transport
