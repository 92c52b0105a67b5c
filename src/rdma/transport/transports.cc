#include "base/check.h"
#include "rdma/transport/raw/engine.h"
#include "rdma/transport/rc/engine.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/uc/engine.h"
#include "rdma/transport/ud/engine.h"
#include "rdma/transport/xrc/engine.h"

namespace tulle::transport {

const TransportTable& TransportTable::standard() {
  static const TransportTable table = {
      &rc::transport,           //
      &uc::transport,           //
      &ud::transport,           //
      &xrc::initiator,          //
      &xrc::target,             //
      &raw::transport,          //
      &raw::receive_transport,  //
  };
  return table;
}

TransportTable::TransportTable(std::initializer_list<const Transport*> rows) {
  for (const Transport* row : rows) add(*row);
}

void TransportTable::add(const Transport& row) {
  TULLE_CHECK(find(row.type) == nullptr);
  rows_.push_back(&row);
}

const Transport* TransportTable::find(verbs::QpType type) const {
  for (const Transport* row : rows_) {
    if (row->type == type) return row;
  }
  return nullptr;
}

}  // namespace tulle::transport
