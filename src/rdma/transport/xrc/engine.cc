#include "rdma/transport/xrc/engine.h"

#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/engine.h"

namespace tulle::transport::xrc {

constinit const Transport initiator = {
    .type = verbs::QpType::xrc_initiator,
    .name = "XRC_INI",
    .ladder = verbs::Ladder::xrc_initiator,
    .sends = verbs::SendOperations::all(),
    .receives = Receives::nothing,
    .notifies_congestion = true,
    .make = make_queue_pair<rc::Engine, rc::Engine::Role::xrc_initiator>,
};

constinit const Transport target = {
    .type = verbs::QpType::xrc_target,
    .name = "XRC_TGT",
    .ladder = verbs::Ladder::xrc_target,
    .receives = Receives::from_named_queue,
    .notifies_congestion = true,
    .make = make_queue_pair<rc::Engine, rc::Engine::Role::xrc_target>,
};

}  // namespace tulle::transport::xrc
