#include "management/cm/message_values.h"

namespace tulle::management::cm {
namespace {

wire::cm::Path path_of(const Request& request) {
  wire::cm::Path path;
  path.local_lid = request.lids.local;
  path.remote_lid = request.lids.remote;
  wire::cm::Path::ServiceLevel::set(path.service_level, request.lids.service_level);
  const bool is_subnet_local = request.route.remote_lid != 0;
  wire::cm::Path::SubnetLocal::set(path.service_level, is_subnet_local ? 1 : 0);
  path.local = request.route.local;
  path.remote = request.route.remote;
  path.flow_label_and_rate = request.flow_label << wire::cm::Path::flow_label_shift;
  path.traffic_class = request.route.traffic_class;
  path.hop_limit = request.hop_limit;
  wire::cm::Path::AckTimeout::set(path.ack_timeout, request.ack_timeout);
  return path;
}

}  // namespace

wire::cm::Request message_of(const Request& request) {
  using Message = wire::cm::Request;
  Message message;
  message.service_id = request.service_id;
  message.local_qp = request.qp.value;
  message.responder_resources = request.responder_resources;
  message.initiator_depth = request.initiator_depth;
  const unsigned service = request.service == Service::rc   ? Message::service_rc
                           : request.service == Service::uc ? Message::service_uc
                                                            : Message::service_extended;
  Message::ServiceType::set(message.service_type, service);
  Message::FlowControl::set(message.service_type, request.flow_control);
  message.starting_psn = request.starting_psn.value();
  Message::RetryCount::set(message.retry_count, request.retry_count);
  message.pkey = request.pkey.value;
  Message::PathMtu::set(message.mtu, request.path_mtu);
  Message::RnrRetryCount::set(message.mtu, request.rnr_retry_count);
  Message::Srq::set(message.max_retries, request.srq);
  if (request.service == Service::xrc) {
    Message::ExtendedTransportType::set(message.max_retries, Message::extended_xrc);
  }
  message.primary = path_of(request);
  copy_private_data(request.private_data.span(), message.private_data);
  return message;
}

wire::cm::Reply message_of(const Reply& reply) {
  using Message = wire::cm::Reply;
  Message message;
  message.local_qp = reply.qp.value;
  message.starting_psn = reply.starting_psn.value();
  message.responder_resources = reply.responder_resources;
  message.initiator_depth = reply.initiator_depth;
  Message::FlowControl::set(message.ack_delay, reply.flow_control);
  Message::FailoverAccepted::set(message.ack_delay, 0);
  Message::TargetAckDelay::set(message.ack_delay, reply.target_ack_delay);
  Message::Srq::set(message.rnr_retry_count, reply.srq);
  Message::RnrRetryCount::set(message.rnr_retry_count, reply.rnr_retry_count);
  copy_private_data(reply.private_data.span(), message.private_data);
  return message;
}

Request request_of(const wire::cm::Request& message, const Route& route) {
  using Message = wire::cm::Request;
  Request request;
  request.route = route;
  request.service_id = message.service_id;
  switch (Message::ServiceType::of(message.service_type)) {
    case Message::service_rc:
      request.service = Service::rc;
      break;
    case Message::service_uc:
      request.service = Service::uc;
      break;
    default:
      request.service = Service::xrc;
      break;
  }
  request.qp = QpNumber{message.local_qp};
  request.starting_psn = Psn{message.starting_psn};
  request.responder_resources = message.responder_resources;
  request.initiator_depth = message.initiator_depth;
  request.flow_control = Message::FlowControl::of(message.service_type) != 0;
  request.srq = Message::Srq::of(message.max_retries) != 0;
  request.retry_count = Message::RetryCount::of(message.retry_count);
  request.rnr_retry_count = Message::RnrRetryCount::of(message.mtu);
  request.pkey = Pkey{message.pkey};
  request.path_mtu = Message::PathMtu::of(message.mtu);
  request.ack_timeout = wire::cm::Path::AckTimeout::of(message.primary.ack_timeout);
  request.packet_lifetime =
      static_cast<std::uint8_t>(request.ack_timeout == 0 ? 0 : request.ack_timeout - 1);
  request.hop_limit = message.primary.hop_limit;
  request.lids = {message.primary.remote_lid, message.primary.local_lid,
                  wire::cm::Path::ServiceLevel::of(message.primary.service_level)};
  request.flow_label = message.primary.flow_label_and_rate >> wire::cm::Path::flow_label_shift;
  request.private_data = PrivateData(message.private_data);
  return request;
}

Reply reply_of(const wire::cm::Reply& message) {
  using Message = wire::cm::Reply;
  Reply reply;
  reply.qp = QpNumber{message.local_qp};
  reply.starting_psn = Psn{message.starting_psn};
  reply.responder_resources = message.responder_resources;
  reply.initiator_depth = message.initiator_depth;
  reply.flow_control = Message::FlowControl::of(message.ack_delay) != 0;
  reply.target_ack_delay = Message::TargetAckDelay::of(message.ack_delay);
  reply.srq = Message::Srq::of(message.rnr_retry_count) != 0;
  reply.rnr_retry_count = Message::RnrRetryCount::of(message.rnr_retry_count);
  reply.private_data = PrivateData(message.private_data);
  return reply;
}

}  // namespace tulle::management::cm
