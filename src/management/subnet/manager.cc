#include "management/subnet/manager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "management/subnet/header.h"
#include "management/subnet/ways.h"

namespace tulle::management::subnet {
namespace {

bool has_changed(const wire::SwitchInfo& info, const wire::SwitchInfo& before) {
  return (info.life_and_change & wire::SwitchInfo::port_state_change) != 0 ||
         info.linear_top != before.linear_top;
}

bool has_changed(const wire::PortInfo& info, const wire::PortInfo& before) {
  return info.speed_supported_and_state != before.speed_supported_and_state ||
         info.management_key != before.management_key ||
         wire::key_protection_of(info) != wire::key_protection_of(before);
}

}  // namespace

Manager::Manager(Time now, const ManagerSettings& settings, Routing routing)
    : settings_(settings),
      routing_(std::move(routing)),
      exchange_(settings.seed, settings.draw),
      discovery_(settings.limits),
      due_(now) {
  exchange_.set_keys(settings.ports.key, settings.shares_keys ? settings.ports.key : 0);
}

wire::SmInfo Manager::info() const {
  wire::SmInfo info;
  info.guid = settings_.port_guid;
  info.key = settings_.manager_key;
  info.activity = activity_;
  info.priority_and_state = wire::halves(settings_.priority, static_cast<unsigned>(state_));
  return info;
}

// --- datagrams ---

void Manager::receive(Time now, const Packet& packet) {
  if (const auto reply = exchange_.receive(packet)) {
    receive_reply(now, *reply);
    return advance(now);
  }
  if (!is_allowed_) return;
  const wire::MadHeader header = header_of(packet.mad);
  if (header.class_version != wire::subnet_class_version) return;
  if (header.method == method_trap && header.attribute_id == wire::attribute_notice) {
    receive_notice(now, packet);
  } else if (asks(header) && header.attribute_id == wire::attribute_sm_info) {
    receive_control(now, packet, header);
  }
}

// Only the master answers a trap (IBTA 14.4.5), since the others do nothing about it.
void Manager::receive_notice(Time now, const Packet& packet) {
  if (state_ != State::master || goes_by_directed_route(packet)) return;
  wire::Notice notice;
  std::memcpy(&notice, packet.mad.data() + wire::subnet_data_offset, sizeof notice);
  if (outgoing_.size() < outgoing_max) {
    Packet repress = answer_to(packet);
    wire::MadHeader header = header_of(packet.mad);
    header.method = method_trap_repress;
    header.status = 0;
    put_attribute(header, 0, repress.mad);
    // A program's trap has no key, and its node lets no answer without one pass.
    wire::SubnetHeader subnet;
    std::memcpy(&subnet, packet.mad.data() + wire::subnet_header_offset, sizeof subnet);
    if (subnet.management_key == 0) subnet.management_key = settings_.ports.key;
    put_attribute(subnet, wire::subnet_header_offset, repress.mad);
    outgoing_.push_back(repress);
  }
  if (notices_.size() < notices_max) notices_.push_back(notice);
  const bool is_change =
      (notice.generic_and_type & wire::Notice::generic) != 0 &&
      (notice.trap == wire::trap_link_state || notice.trap == wire::trap_capability);
  if (is_change) want_sweep(now);
}

void Manager::answer(const Packet& packet, Status status) {
  if (outgoing_.size() >= outgoing_max) return;
  Packet out = answer_to(packet);
  const bool is_directed = goes_by_directed_route(packet);
  const std::uint16_t direction = is_directed ? wire::directed_route_returns : 0;
  begin_answer(packet.mad, status, direction, out.mad);
  wire::SmInfo own = info();
  if (!has_keys_of(packet)) own.key = 0;  // IBTA 14.2.5.13
  put_attribute(own, wire::subnet_data_offset, out.mad);
  if (!is_directed && out.source.value == wire::permissive_lid && !graph_.nodes.empty()) {
    out.source = Lid(graph_.nodes[0].lid);
  }
  outgoing_.push_back(out);
}

// Returns true unless the keys are secret, and the sender does not know them.
bool Manager::has_keys_of(const Packet& packet) const {
  if (!settings_.shares_keys) return true;
  wire::SubnetHeader header;
  std::memcpy(&header, packet.mad.data() + wire::subnet_header_offset, sizeof header);
  return header.management_key == settings_.ports.key;
}

void Manager::receive_control(Time now, const Packet& packet, const wire::MadHeader& header) {
  if (header.method == method_get) return answer(packet, Status::ok);
  wire::SmInfo sender;
  std::memcpy(&sender, packet.mad.data() + wire::subnet_data_offset, sizeof sender);
  if (settings_.shares_keys && sender.key != settings_.manager_key) {
    return answer(packet, Status::invalid_value);
  }
  const auto control =
      static_cast<wire::ManagerControl>(static_cast<std::uint32_t>(header.attribute_modifier));
  const Status status = obey(now, control, packet);
  answer(packet, status);
  const bool was_handed_over = control == wire::ManagerControl::handover && status == Status::ok;
  if (was_handed_over) acknowledge(packet);
}

// IBTA 14.4.1: what the states of a manager let others tell it. A manager that looks for the others
// knows no master yet, and obeys nobody.
Status Manager::obey(Time now, wire::ManagerControl control, const Packet& packet) {
  const bool waits = state_ == State::standby || state_ == State::not_active;
  if (state_ == State::discovering || (waits && !polled_.has_sent(discovery_.graph(), packet))) {
    return Status::invalid_value;
  }
  switch (control) {
    case wire::ManagerControl::handover:
      if (state_ != State::standby && state_ != State::master) return Status::invalid_value;
      if (state_ == State::standby) {
        restart(now, State::master);
      } else {
        want_sweep(now);
      }
      return Status::ok;
    case wire::ManagerControl::acknowledge:
      return state_ == State::standby || state_ == State::master ? Status::ok
                                                                 : Status::invalid_value;
    case wire::ManagerControl::disable:
      if (state_ == State::master) return Status::invalid_value;
      restart(now, State::not_active);
      rest(now + poll_pause);
      return Status::ok;
    case wire::ManagerControl::standby:
      if (state_ != State::not_active) return Status::invalid_value;
      restart(now, State::discovering);
      return Status::ok;
    case wire::ManagerControl::discover:
      if (state_ != State::standby) return Status::invalid_value;
      restart(now, State::discovering);
      return Status::ok;
  }
  return Status::invalid_value;
}

// A manager that was handed the subnet says so, once: anybody can make it say so.
void Manager::acknowledge(const Packet& packet) {
  if (!goes_by_directed_route(packet) || outgoing_.size() >= outgoing_max) return;
  outgoing_.push_back(exchange_.unawaited(
      set_question(way_back(packet), wire::attribute_sm_info,
                   static_cast<std::uint32_t>(wire::ManagerControl::acknowledge), info())));
}

std::optional<Packet> Manager::take_packet(Time now) {
  if (!outgoing_.empty()) {
    const Packet packet = outgoing_.front();
    outgoing_.pop_front();
    return packet;
  }
  const auto packet = exchange_.take_packet(now);
  activity_ += packet.has_value();
  return packet;
}

std::optional<wire::Notice> Manager::take_notice() {
  if (notices_.empty()) return std::nullopt;
  const wire::Notice notice = notices_.front();
  notices_.pop_front();
  return notice;
}

// --- time ---

Time Manager::next_timeout() const {
  if (!is_allowed_) return exchange_.next_timeout();
  if (!outgoing_.empty()) return Time::zero();
  Time next = phase_ == Phase::idle ? due_ : Time::never();
  if (has_groups_to_set()) next = std::min(next, group_times_.next());
  if (phase_ == Phase::idle) next = std::min(next, group_times_.next_end());
  return std::min(next, exchange_.next_timeout());
}

void Manager::expire(Time now, const CollectMembers& members) {
  while (const auto reply = exchange_.expire(now)) receive_reply(now, *reply);
  advance(now);
  if (!is_allowed_) return;
  if (phase_ == Phase::idle) group_times_.end(now);
  // What is due comes first: programs can change groups without end.
  if (phase_ == Phase::idle && due_ <= now) begin_due(now);
  advance(now);
  if (has_groups_to_set() && now >= group_times_.next()) begin_groups(now, members);
  advance(now);
}

void Manager::set_members(Members members) {
  are_members_old_ = false;
  if (members == members_) return;
  members_ = std::move(members);
  wants_groups_ = true;
}

void Manager::set_allowed(Time now, bool is_allowed) {
  if (is_allowed == is_allowed_) return;
  is_allowed_ = is_allowed;
  const bool was_master = state_ == State::master;
  restart(now, is_allowed ? State::discovering : State::not_active);
  if (was_master) ask_to_release(graph_.nodes.empty() ? working_ : graph_);
}

void Manager::restart(Time now, State state) {
  exchange_.clear();
  outgoing_.clear();
  state_ = state;
  is_up_ = false;
  is_new_master_ = true;
  wants_sweep_ = true;
  rest(state == State::not_active ? Time::never() : now);
}

// Traps come in swarms, and one sweep answers many. Only a master sweeps.
void Manager::want_sweep(Time now) {
  wants_sweep_ = is_urgent_ = true;
  if (phase_ != Phase::idle || state_ != State::master) return;
  due_ = std::min(due_, std::max(now, next_sweep_));
}

void Manager::begin_due(Time now) {
  switch (state_) {
    // One that a master has disabled works again when that is no master any more.
    case State::not_active:
    case State::standby:
      phase_ = Phase::polling;
      return exchange_.ask(polled_.poll());
    case State::discovering:
      return begin_discovery(now);
    case State::master:
      return wants_sweep_ ? begin_discovery(now) : begin_light_sweep();
  }
}

// --- phases ---

void Manager::ask(const std::vector<Question>& questions) {
  for (const Question& question : questions) exchange_.ask(question);
}

void Manager::advance(Time now) {
  while (exchange_.is_over() && phase_ != Phase::idle) {
    switch (phase_) {
      case Phase::idle:
        return;
      case Phase::discovering:
        decide(now);
        break;
      case Phase::releasing:
        hand_over();
        break;
      case Phase::handing_over:
        // It was refused.
        configure();
        break;
      case Phase::setting_ports:
        phase_ = Phase::setting_tables;
        ask(tables_.questions(working_));
        break;
      case Phase::setting_tables:
        phase_ = Phase::arming;
        ask(state_questions(working_, wire::PortState::initialise, wire::PortState::armed));
        break;
      case Phase::arming:
        phase_ = Phase::activating;
        ask(state_questions(working_, wire::PortState::armed, wire::PortState::active));
        break;
      case Phase::activating:
        end_sweep(now);
        break;
      case Phase::setting_groups:
        phase_ = Phase::idle;
        if (is_urgent_) want_sweep(now);
        break;
      case Phase::looking:
      case Phase::polling:
        rest(now + (state_ == State::master ? light_sweep_pause : poll_pause));
        if (wants_sweep_ && state_ == State::master) want_sweep(now);
        break;
    }
  }
}

void Manager::receive_reply(Time now, const Reply& reply) {
  switch (phase_) {
    case Phase::idle:
      return;
    case Phase::discovering:
      return discovery_.receive(reply, exchange_);
    case Phase::releasing:
      return;  // what it could not release, the next manager takes over when the lease ends
    case Phase::handing_over:
      if (!reply.is_good()) return;
      restart(now, State::standby);
      return rest(now + poll_pause);
    case Phase::setting_tables:
      tables_.receive(working_, reply);
      return receive_set(reply);
    case Phase::setting_ports:
    case Phase::arming:
    case Phase::activating:
      return receive_set(reply);
    case Phase::setting_groups:
      return groups_.receive(graph_, reply);
    case Phase::looking:
      return look_at(reply);
    case Phase::polling:
      return receive_poll(now, reply);
  }
}

void Manager::begin_discovery(Time now) {
  phase_ = Phase::discovering;
  wants_sweep_ = is_urgent_ = false;
  sweep_began_ = now;
  errors_ = 0;
  has_released_ = false;
  discovery_.begin(exchange_, state_ == State::master);
}

// IBTA 14.4.1: a manager that finds the master, or one that has precedence, waits. A master hands
// over to one that has precedence.
void Manager::decide(Time now) {
  if (discovery_.graph().nodes.empty()) return rest(now + light_sweep_pause);
  const OtherManager* other = master_or_preferred();
  if (other != nullptr && state_ == State::master) return release(*other);
  if (other != nullptr) return stand_by(now, *other);
  state_ = State::master;
  configure();
}

bool Manager::has_precedence(const OtherManager& other) const {
  if (other.priority() != settings_.priority) return other.priority() > settings_.priority;
  return other.info.guid < settings_.port_guid;
}

const OtherManager* Manager::master_or_preferred() const {
  const OtherManager* best = nullptr;
  for (const OtherManager& other : discovery_.managers()) {
    if (other.info.guid == settings_.port_guid || other.state() == State::not_active) continue;
    if (settings_.shares_keys && other.info.key != settings_.manager_key) continue;
    const bool is_master = other.state() == State::master;
    if (!is_master && (polled_.is_passed_over(other.info.guid) || !has_precedence(other))) continue;
    // If two managers are masters, the one with precedence waits for the other to hand over.
    if (state_ == State::master && !has_precedence(other)) continue;
    if (best == nullptr || (is_master && best->state() != State::master)) best = &other;
  }
  return best;
}

void Manager::stand_by(Time now, const OtherManager& other) {
  state_ = State::standby;
  is_new_master_ = true;
  is_up_ = false;
  polled_.choose(discovery_.graph(), other, other.state() == State::master);
  rest(now + poll_pause);
}

void Manager::release(const OtherManager& other) {
  phase_ = Phase::releasing;
  polled_.choose(discovery_.graph(), other, false);
  has_released_ = true;
  ask_to_release(discovery_.graph());
}

void Manager::ask_to_release(const Graph& graph) {
  if (settings_.ports.key == 0 || settings_.shares_keys) return;
  ask(release_questions(graph, settings_.ports.key));
}

void Manager::hand_over() {
  phase_ = Phase::handing_over;
  exchange_.ask(set_question(polled_.route(), wire::attribute_sm_info,
                             static_cast<std::uint32_t>(wire::ManagerControl::handover), info()));
}

// A port whose lease has ended shows its key to everybody. All ports get another one then.
void Manager::replace_shown_key() {
  const std::uint64_t key = settings_.ports.key;
  if (key == 0 || settings_.shares_keys || !settings_.draw) return;
  const bool is_shown = std::ranges::any_of(working_.nodes, [&](const GraphNode& node) {
    const GraphPort& port = node.end_port();
    return port.is_known && port.info.management_key == key &&
           wire::key_protection_of(port.info) == 0 && settings_.ports.key_protection != 0;
  });
  if (!is_shown) return;
  settings_.ports.key = drawn_key(settings_.draw);
  exchange_.set_keys(settings_.ports.key, 0);
}

void Manager::configure() {
  errors_ = discovery_.unanswered() + discovery_.left_out();
  working_ = discovery_.take_graph();
  if (!has_released_) replace_shown_key();
  errors_ += lids_.assign(working_, settings_.lmc);
  for (GraphNode& node : working_.nodes) {
    // The sweep read the key before it took it away.
    wire::PortInfo& end = node.end_port().info;
    if (has_released_ && end.management_key == settings_.ports.key) end.management_key = 0;
    if (!node.is_switch()) continue;
    node.linear.assign(lids_.top() + std::size_t{1}, KnownTables::no_port);
    if (node.lid != 0) node.linear[node.lid] = 0;
  }
  routing_(working_);
  if (is_new_master_) {
    tables_.clear();
    groups_.clear();
  }
  PortSettings ports = settings_.ports;
  ports.reregisters = is_new_master_;
  phase_ = Phase::setting_ports;
  ask(port_questions(working_, ports));
}

void Manager::receive_set(const Reply& reply) {
  if (!reply.is_good()) {
    ++errors_;
    return;
  }
  GraphNode& node = working_.nodes[reply.question.node];
  if (reply.question.attribute == wire::attribute_port_info) {
    wire::PortInfo& info = node.ports[reply.question.place].info;
    info = reply.as<wire::PortInfo>();
    // A port that had another key does not show the new one.
    wire::PortInfo wanted;
    std::memcpy(&wanted, reply.question.data.data(), sizeof wanted);
    if (reply.question.place == 0) info.management_key = wanted.management_key;
  } else if (reply.question.attribute == wire::attribute_switch_info) {
    node.switch_info = reply.as<wire::SwitchInfo>();
  }
}

void Manager::end_sweep(Time now) {
  graph_ = std::exchange(working_, {});
  is_up_ = true;
  is_new_master_ = false;
  wants_groups_ = true;
  ++sweeps_;
  next_sweep_ = now + std::max(sweep_pause, now - sweep_began_);
  rest(now + light_sweep_pause);
  wants_sweep_ = wants_sweep_ || errors_ > 0;
  if (is_urgent_) want_sweep(now);
}

// --- groups, light sweeps and polls ---

// Setting groups does not put off the sweeps and polls that are due.
void Manager::begin_groups(Time now, const CollectMembers& members) {
  group_times_.begin(now);
  if (are_members_old_) {
    TULLE_CHECK(members != nullptr);
    set_members(members());
  }
  if (!std::exchange(wants_groups_, false)) return;
  phase_ = Phase::setting_groups;
  ask(groups_.questions(graph_, members_));
}

// Switches note changes. A port with a key receives requests from its manager, whose lease ends
// otherwise, and reports whether it still protects itself.
void Manager::begin_light_sweep() {
  phase_ = Phase::looking;
  for (std::uint32_t index = 0; index < graph_.nodes.size(); ++index) {
    const GraphNode& node = graph_.nodes[index];
    Question question;
    question.route = node.route;
    question.node = index;
    if (node.is_switch()) {
      question.attribute = wire::attribute_switch_info;
      exchange_.ask(question);
    }
    if (settings_.ports.key == 0 && (node.is_switch() || index != 0)) continue;
    question.attribute = wire::attribute_port_info;
    question.modifier = node.number(0);
    exchange_.ask(question);
  }
}

void Manager::look_at(const Reply& reply) {
  if (!reply.is_good()) {
    wants_sweep_ = true;
    return;
  }
  const GraphNode& node = graph_.nodes[reply.question.node];
  if (reply.question.attribute == wire::attribute_switch_info) {
    wants_sweep_ |= has_changed(reply.as<wire::SwitchInfo>(), node.switch_info);
  } else {
    wants_sweep_ |= has_changed(reply.as<wire::PortInfo>(), node.end_port().info);
  }
}

void Manager::receive_poll(Time now, const Reply& reply) {
  const auto precedes = [this](const OtherManager& other) { return has_precedence(other); };
  if (!polled_.receive(reply, precedes)) restart(now, State::discovering);
}

}  // namespace tulle::management::subnet
