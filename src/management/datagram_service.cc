#include "management/datagram_service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "wire/rmpp.h"

namespace tulle::management {
namespace {

// IBTA 16.5.1: behind the header of a reliable transfer, a vendor's datagram names the vendor.
constexpr std::size_t oui_offset = 37;

// Subnet administration answers with the method's response bit; TrapRepress answers a trap although
// it lacks the bit (IBTA 13.4.5).
bool is_answer(const wire::MadHeader& header) {
  return (header.method & response_bit) != 0 || header.method == method_trap_repress;
}

std::uint32_t oui_of(Request mad) {
  std::uint32_t oui = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    oui = oui << 8 | std::to_integer<std::uint32_t>(mad[oui_offset + i]);
  }
  return oui;
}

void set_upper_transaction(Packet& packet, std::uint32_t key) {
  wire::MadHeader header = header_of(packet.mad);
  header.transaction_id =
      std::uint64_t{key} << 32 | (header.transaction_id & std::uint64_t{0xFFFF'FFFF});
  std::memcpy(packet.mad.data(), &header, sizeof header);
}

bool is_same_class(const Registration& a, const Registration& b) {
  return a.management_class == b.management_class && a.class_version == b.class_version &&
         a.oui == b.oui;
}

}  // namespace

DatagramService::Registered DatagramService::add(ClientId client,
                                                 const Registration& registration) {
  std::bitset<agents_of_client_max> used;
  for (const auto& [key, agent] : agents_) {
    if (agent.client == client) used.set(agent.number);
    const bool is_taken = is_same_class(agent.registration, registration) &&
                          (agent.registration.methods & registration.methods).any();
    if (is_taken) return {Refusal::taken, 0};
  }
  if (used.all()) return {Refusal::no_room, 0};
  std::uint32_t number = 0;
  while (used[number]) ++number;
  while (next_key_ == 0 || agents_.contains(next_key_)) ++next_key_;
  agents_.emplace(next_key_++, Agent{client, number, registration});
  return {Refusal::none, number};
}

std::optional<std::uint32_t> DatagramService::key_of(ClientId client, std::uint32_t number) const {
  for (const auto& [key, agent] : agents_) {
    if (agent.client == client && agent.number == number) return key;
  }
  return std::nullopt;
}

void DatagramService::forget(std::uint32_t key) {
  std::erase_if(waiting_, [key](const Waiting& each) { return each.agent_key == key; });
  agents_.erase(key);
}

DatagramService::Refusal DatagramService::remove(ClientId client, std::uint32_t agent) {
  const auto key = key_of(client, agent);
  if (!key) return Refusal::unknown_agent;
  forget(*key);
  return Refusal::none;
}

void DatagramService::remove_client(ClientId client) {
  for (std::uint32_t number = 0; number < agents_of_client_max; ++number) {
    static_cast<void>(remove(client, number));
  }
}

std::size_t DatagramService::waiting_of(ClientId client) const {
  return static_cast<std::size_t>(std::count_if(
      waiting_.begin(), waiting_.end(),
      [&](const Waiting& each) { return agents_.at(each.agent_key).client == client; }));
}

std::size_t DatagramService::transaction_bytes() const {
  std::size_t bytes = 0;
  for (const RmppSender& each : senders_) bytes += each.bytes();
  for (const RmppReceiver& each : receivers_) bytes += each.bytes();
  return bytes;
}

DatagramService::Refusal DatagramService::send(Time now, ClientId client, Question question) {
  const auto key = key_of(client, question.agent);
  if (!key) return Refusal::unknown_agent;
  Packet& packet = question.packet;
  const bool is_question = !is_answer(header_of(packet.mad));
  const bool waits = is_question && question.timeout > Time::zero();
  const bool is_transaction =
      agents_.at(*key).registration.has_transactions && asks_for_rmpp(packet.mad);
  const bool has_room =
      (!waits || waiting_of(client) < questions_of_client_max) &&
      (!is_transaction || (senders_.size() < transactions_max &&
                           transaction_bytes() + question.whole.size() <= transaction_bytes_max));
  if (!has_room) return Refusal::no_room;
  if (is_question) set_upper_transaction(packet, *key);
  if (waits) {
    waiting_.push_back({*key, packet, question.timeout, now + question.timeout, question.retries});
  }
  if (!is_transaction) {
    outgoing_.push_back(packet);
    return Refusal::none;
  }
  auto& whole = question.whole;
  whole.resize(std::max(whole.size(), sizeof(wire::MadHeader)));
  std::copy_n(packet.mad.begin(), sizeof(wire::MadHeader), whole.begin());
  senders_.emplace_back(now, packet, std::move(whole));
  return Refusal::none;
}

std::optional<Packet> DatagramService::take_packet() {
  for (RmppSender& sender : senders_) {
    if (auto packet = sender.take_packet()) return packet;
  }
  std::erase_if(senders_, [](const RmppSender& each) { return each.is_over(); });
  if (outgoing_.empty()) return std::nullopt;
  const Packet packet = outgoing_.front();
  outgoing_.pop_front();
  return packet;
}

DatagramService::Waitings::iterator DatagramService::question_of(const Packet& answer) {
  const wire::MadHeader header = header_of(answer.mad);
  const std::uint64_t transaction = header.transaction_id;
  return std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    const wire::MadHeader asked = header_of(each.packet.mad);
    // Anybody may answer in another's name, but not from its LID.
    const Lid to = each.packet.destination;
    const bool is_from_there = answer.source == to || to.value == wire::permissive_lid ||
                               header.management_class == wire::subnet_directed_class;
    return is_from_there && asked.transaction_id == transaction &&
           asked.management_class == header.management_class;
  });
}

// Returns the key of the agent that asked the question, or that has registered for it.
std::optional<std::uint32_t> DatagramService::agent_for(const Packet& packet) {
  const wire::MadHeader header = header_of(packet.mad);
  if (is_answer(header)) {
    const auto question = question_of(packet);
    if (question == waiting_.end()) return std::nullopt;
    return question->agent_key;
  }
  const std::uint32_t oui = wire::has_oui(header.management_class) ? oui_of(packet.mad) : 0;
  for (const auto& [key, agent] : agents_) {
    const Registration& wants = agent.registration;
    if (wants.management_class == header.management_class &&
        wants.class_version == header.class_version && wants.oui == oui &&
        wants.methods[header.method & 0x7F]) {
      return key;
    }
  }
  return std::nullopt;
}

std::optional<DatagramService::Delivery> DatagramService::deliver(const Packet& packet,
                                                                  std::vector<std::byte> whole) {
  const auto key = agent_for(packet);
  if (!key) return std::nullopt;
  if (is_answer(header_of(packet.mad))) waiting_.erase(question_of(packet));
  const Agent& agent = agents_.at(*key);
  return Delivery{agent.client, agent.number, false, packet, std::move(whole)};
}

std::optional<DatagramService::Delivery> DatagramService::receive(Time now, const Packet& packet) {
  if (!is_rmpp(packet.mad)) return deliver(packet, {});
  for (RmppSender& sender : senders_) {
    if (!sender.owns(packet)) continue;
    sender.receive(now, packet);
    return std::nullopt;
  }
  const auto key = agent_for(packet);
  const bool is_agents_own = key && !agents_.at(*key).registration.has_transactions;
  return is_agents_own ? deliver(packet, {}) : receive_segment(now, packet);
}

std::optional<DatagramService::Delivery> DatagramService::receive_segment(Time now,
                                                                          const Packet& packet) {
  auto receiver = std::find_if(receivers_.begin(), receivers_.end(),
                               [&](const RmppReceiver& each) { return each.owns(packet); });
  if (receiver == receivers_.end()) {
    const bool begins = is_first_segment(packet.mad) && agent_for(packet).has_value();
    if (!begins || receivers_.size() >= transactions_max) return std::nullopt;
    receivers_.emplace_back(now, packet);
    receiver = std::prev(receivers_.end());
    // The question has its answer, of which the rest is under way.
    const auto question = question_of(packet);
    if (question != waiting_.end()) question->due = now + RmppReceiver::patience;
  }
  const std::size_t others = transaction_bytes() - receiver->bytes();
  const std::size_t room = transaction_bytes_max - std::min(others, transaction_bytes_max);
  if (const auto back = receiver->receive(now, packet, room)) outgoing_.push_back(*back);
  std::vector<std::byte> whole;
  if (!receiver->take_whole(whole)) return std::nullopt;
  return deliver(receiver->first(), std::move(whole));
}

Time DatagramService::next_timeout() const {
  Time next = Time::never();
  for (const Waiting& each : waiting_) next = std::min(next, each.due);
  for (const RmppSender& each : senders_) next = std::min(next, each.deadline());
  for (const RmppReceiver& each : receivers_) next = std::min(next, each.deadline());
  return next;
}

std::optional<DatagramService::Delivery> DatagramService::expire(Time now) {
  for (RmppSender& each : senders_) each.expire(now);
  std::erase_if(receivers_, [now](const RmppReceiver& each) { return each.is_over(now); });
  for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
    if (each->due > now) continue;
    if (each->retries == 0) {
      const Agent& agent = agents_.at(each->agent_key);
      Delivery delivery{agent.client, agent.number, true, each->packet, {}};
      waiting_.erase(each);
      return delivery;
    }
    --each->retries;
    each->due = now + each->timeout;
    outgoing_.push_back(each->packet);
  }
  return std::nullopt;
}

}  // namespace tulle::management
